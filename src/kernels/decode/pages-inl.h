// Products of a few query rows with full pages of a cache: every key and value is read once, and
// memory bandwidth is the limit. Rows go in blocks of four, two or one; the fewer they are, the
// more terms of the sum run in parallel, so that all accumulators are always busy.
#if defined(RAPT_PAGES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_PAGES_INL_H
#undef RAPT_PAGES_INL_H
#else
#define RAPT_PAGES_INL_H
#endif

#include "kernels/decode/int8_pack-inl.h"
#include "kernels/decode/rows-inl.h"
#include "kernels/tiles/bf16_pack-inl.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How a vector of stored lanes becomes vectors of numbers, one for each of `terms` neighbours in
// the sum. The numbers come out multiplied by `factor`.

/// GCC would load words again for each of their terms, and loads are the bottleneck.
template <class V>
HWY_INLINE V KeptInRegister(V lanes) {
#if HWY_TARGET == HWY_AVX3
  asm("" : "+v"(lanes.raw));
#endif
  return lanes;
}

struct StoredF32 {
  static constexpr int terms = 1;
  static constexpr float factor = 1;
  using Lanes = VF;
  static HWY_INLINE Lanes Load(const std::byte* from) {
    return hn::LoadU(DF(), reinterpret_cast<const float*>(from));
  }
  static HWY_INLINE VF Number(Lanes lanes, int) { return lanes; }
};

struct StoredBf16 {
  static constexpr int terms = 2;
  static constexpr float factor = 1;
  using Lanes = hn::Vec<DWords>;
  static HWY_INLINE Lanes Load(const std::byte* from) {
    return KeptInRegister(LoadWords(DWords(), reinterpret_cast<const Bf16*>(from)));
  }
  static HWY_INLINE VF Number(Lanes words, int term) {
    return term == 0 ? LowerBf16(DF(), words) : UpperBf16(DF(), words);
  }
};

struct StoredInt8 {
  static constexpr int terms = 4;
  static constexpr float factor = int8_factor;
  using Lanes = decltype(LoadInt8Words(nullptr));
  static HWY_INLINE Lanes Load(const std::byte* from) {
    return KeptInRegister(LoadInt8Words(reinterpret_cast<const std::int8_t*>(from)));
  }
  static HWY_INLINE VF Number(Lanes words, int term) { return Int8Numbers(words, term); }
};

/// Bytes of a lane, whatever is stored in it.
inline constexpr Index lane_bytes = 4;

/// Neighbouring terms of keys are columns; those of values are slots, word_gap apart.
enum class Terms { columns, slots };

/// Index of the left operand of a term.
template <class Stored, Terms terms>
HWY_INLINE Index LeftOf(Index row, int term) {
  if constexpr (terms == Terms::columns) return row * Stored::terms + term;
  return row / word_gap * word_gap * Stored::terms + row % word_gap + word_gap * term;
}

/// Prefetches memory before its use. The hardware prefetcher follows ascending addresses, but does
/// not know which page comes next, and the products do not read quite in order: this stream does,
/// one step for each of their steps.
class PagePrefetch {
 public:
  PagePrefetch(const std::byte* begin, Index bytes, const void* next)
      : at_(reinterpret_cast<std::uintptr_t>(begin) + distance),
        end_(reinterpret_cast<std::uintptr_t>(begin) + static_cast<std::uintptr_t>(bytes)),
        jump_(reinterpret_cast<std::uintptr_t>(next) - end_) {}

  template <int vectors>
  HWY_INLINE void Step() {
    if (HWY_UNLIKELY(at_ >= end_)) {
      at_ += jump_;
      end_ = ~std::uintptr_t{0};
    }
#pragma GCC unroll 4
    for (std::uintptr_t line = 0; line < vectors * lane_count * lane_bytes; line += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(at_ + line));
    at_ += vectors * lane_count * lane_bytes;
  }

 private:
  /// More than the products read out of order. Half and twice as much were as fast.
  static constexpr std::uintptr_t distance = 4096;
  std::uintptr_t at_, end_, jump_;
};

/// For pages of which only some slots are read: what is next in memory may never be. With 16 heads
/// of 1 key each, useless prefetches took longer than the products.
struct NoPrefetch {
  template <int vectors>
  HWY_INLINE void Step() {}
};

/// A right operand as it is stored, and how much of it is used.
struct PageOperand {
  const std::byte* at;
  Index rows, columns;  // columns in lanes
  Index used_rows, used_columns;
  const void* next;  // what is read afterwards; null: no prefetching

  Index Bytes() const { return rows * columns * lane_bytes; }
};

/// Some columns of it.
struct PageColumns {
  const std::byte* at;
  Index row_bytes;
};

/// How the accumulators are used: rows x vectors x sums that run in parallel.
template <class Stored, int rows>
struct PageShape {
  static constexpr bool many_registers = panel_vectors >= 4;
  static constexpr bool words = Stored::terms > 1;
  /// Panels of f32 have a fixed width. Rows of words are read whole where accumulators allow: in
  /// two passes memory would not be read in order.
  static constexpr int vectors = !words               ? panel_vectors
                                 : many_registers     ? (rows == 4 ? 4 : 8)
                                 : rows == 4          ? 2
                                 : Stored::terms == 4 ? 3
                                                      : 4;
  /// Converting words to numbers needs registers.
  static constexpr int Parts(int used) {
    if (many_registers) return rows * used <= 4 ? 4 : rows * used <= 8 ? 2 : 1;
    return words ? std::max(1, 2 / rows) : 4 / rows;
  }
};

/// All terms of one row of the right operand, the n-th into part[n % parts], counted from `first`.
template <class Stored, Terms terms, int rows, int vectors, int parts>
HWY_INLINE void MultiplyPageRow(const float* a, Index a_stride, const std::byte* b, Index k,
                                int first, VF (&part)[parts][rows][vectors]) {
  const DF d;
  typename Stored::Lanes lanes[vectors];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) lanes[v] = Stored::Load(b + v * lane_count * lane_bytes);
#pragma GCC unroll 4
  for (int t = 0; t < Stored::terms; ++t) {
    VF x[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) x[v] = Stored::Number(lanes[v], t);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const VF left = hn::Set(d, a[r * a_stride + LeftOf<Stored, terms>(k, t)]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        VF& sum = part[(first + t) % parts][r][v];
        sum = hn::MulAdd(left, x[v], sum);
      }
    }
  }
}

/// acc[r][v] = the sum over rows begin .. end - 1 of the right operand.
template <class Stored, Terms terms, int rows, int vectors, class Stream>
HWY_INLINE void MultiplyPageRows(const float* a, Index a_stride, const PageColumns& right,
                                 Index begin, Index end, Stream& prefetch,
                                 VF (&acc)[rows][vectors]) {
  constexpr int parts = PageShape<Stored, rows>::Parts(vectors);
  constexpr int together = std::max(1, parts / Stored::terms);
  const DF d;
  VF part[parts][rows][vectors];
#pragma GCC unroll 4
  for (int s = 0; s < parts; ++s) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) part[s][r][v] = hn::Zero(d);
    }
  }
  Index k = begin;
  for (; k + together <= end; k += together) {
#pragma GCC unroll 4
    for (int i = 0; i < together; ++i) {
      const std::byte* row = right.at + (k + i) * right.row_bytes;
      prefetch.template Step<vectors>();
      MultiplyPageRow<Stored, terms>(a, a_stride, row, k + i, i * Stored::terms, part);
    }
  }
  for (Index rest = (end - begin) % together; rest > 0; --rest, ++k)
    MultiplyPageRow<Stored, terms>(a, a_stride, right.at + k * right.row_bytes, k, 0, part);
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      if constexpr (parts == 4) {
        acc[r][v] =
            hn::Add(hn::Add(part[0][r][v], part[1][r][v]), hn::Add(part[2][r][v], part[3][r][v]));
      } else if constexpr (parts == 2) {
        acc[r][v] = hn::Add(part[0][r][v], part[1][r][v]);
      } else {
        static_assert(parts == 1);
        acc[r][v] = part[0][r][v];
      }
    }
  }
}

/// Rows of a left operand and of a result.
struct QueryRows {
  const float* a;
  Index a_stride;
  float* out;
  Index out_stride;
};

/// out (+)= the product over rows begin .. end - 1.
template <class Stored, Terms terms, int rows, int vectors, class Stream>
HWY_INLINE void MultiplyPageColumns(const QueryRows& at, const PageColumns& right, Index begin,
                                    Index end, Stream& prefetch) {
  const DF d;
  const VF factor = hn::Set(d, 1 / Stored::factor);
  VF acc[rows][vectors];
  MultiplyPageRows<Stored, terms>(at.a, at.a_stride, right, begin, end, prefetch, acc);
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      float* to = at.out + r * at.out_stride + v * lane_count;
      const bool add = terms == Terms::slots || begin > 0;
      const VF before = add ? hn::LoadU(d, to) : hn::Zero(d);
      hn::StoreU(hn::MulAdd(acc[r][v], factor, before), d, to);
    }
  }
}

/// The same for as many columns as there are, at most PageShape::vectors.
template <class Stored, Terms terms, int rows, int vectors = PageShape<Stored, rows>::vectors,
          class Stream>
HWY_INLINE void MultiplyPagePanel(Index count, const QueryRows& at, const PageColumns& right,
                                  Index begin, Index end, Stream& prefetch) {
  if (count == vectors)
    return MultiplyPageColumns<Stored, terms, rows, vectors>(at, right, begin, end, prefetch);
  if constexpr (vectors > 1)
    MultiplyPagePanel<Stored, terms, rows, vectors - 1>(count, at, right, begin, end, prefetch);
}

/// Rows of the right operand in one chain of f32 sums, which stays as short as in the other
/// products.
template <class Stored, Terms terms, int rows>
HWY_INLINE Index PageBlockRows(Index vectors) {
  const Index numbers = terms == Terms::slots
                            ? tile
                            : stretch * PageShape<Stored, rows>::Parts(static_cast<int>(vectors));
  return numbers / Stored::terms;
}

/// Words: all columns of a few rows, then the next rows, so that memory is read nearly in order.
/// With sixteen rows at a time bf16 of dim 128 was 5 % slower from memory; with four, 10 % slower
/// from the caches. Where all columns have accumulators the rows need not be split.
template <class Stored, Terms terms, int rows, class Stream>
HWY_INLINE void MultiplyPageWords(const QueryRows& at, const PageOperand& right, Stream& prefetch) {
  constexpr Index most = PageShape<Stored, rows>::vectors * lane_count;
  const Index whole =
      PageBlockRows<Stored, terms, rows>(std::min(most, right.used_columns) / lane_count);
  const Index block = right.used_columns <= most ? whole : std::min<Index>(8, whole);
  for (Index k = 0; k < right.used_rows; k += block) {
    for (Index first = 0; first < right.used_columns; first += most) {
      MultiplyPagePanel<Stored, terms, rows>(
          std::min(most, right.used_columns - first) / lane_count,
          {at.a, at.a_stride, at.out + first, at.out_stride},
          {right.at + first * lane_bytes, right.columns * lane_bytes}, k,
          std::min(k + block, right.used_rows), prefetch);
    }
  }
}

/// Floats: panel after panel.
template <Terms terms, int rows, class Stream>
HWY_INLINE void MultiplyPageF32(const QueryRows& at, const PageOperand& right, Stream& prefetch) {
  for (Index first = 0; first < right.used_columns; first += panel_columns) {
    const Index width = std::min(panel_columns, right.columns - first);
    const Index vectors = std::min(width, right.used_columns - first) / lane_count;
    const Index block = PageBlockRows<StoredF32, terms, rows>(vectors);
    const PageColumns panel{right.at + first * right.rows * lane_bytes, width * lane_bytes};
    for (Index k = 0; k < right.used_rows; k += block)
      MultiplyPagePanel<StoredF32, terms, rows>(
          vectors, {at.a, at.a_stride, at.out + first, at.out_stride}, panel, k,
          std::min(k + block, right.used_rows), prefetch);
  }
}

/// Rows in blocks of four, two and one.
template <class Stored, Terms terms, class Stream>
HWY_INLINE void MultiplyPagePrefetched(QueryRows at, Index rows, const PageOperand& right,
                                       Stream prefetch) {
  const auto with = [&](auto count) {
    constexpr int block = decltype(count)::value;
    if constexpr (Stored::terms == 1) {
      MultiplyPageF32<terms, block>(at, right, prefetch);
    } else {
      MultiplyPageWords<Stored, terms, block>(at, right, prefetch);
    }
    at.a += block * at.a_stride;
    at.out += block * at.out_stride;
    rows -= block;
  };
  while (rows >= 4) with(std::integral_constant<int, 4>());
  while (rows >= 2) with(std::integral_constant<int, 2>());
  if (rows == 1) with(std::integral_constant<int, 1>());
}

template <class Stored, Terms terms>
inline void MultiplyPage(const QueryRows& at, Index rows, const PageOperand& right) {
  // One row of bf16 is faster without prefetching: 8,192 keys of 16 x 64, two threads, 57 with and
  // 74 GB/s without; of 16 x 128, 37 and 49.
  const bool alone = Stored::terms == 2 && rows == 1;
  if (right.next == nullptr || alone)
    return MultiplyPagePrefetched<Stored, terms>(at, rows, right, NoPrefetch());
  MultiplyPagePrefetched<Stored, terms>(at, rows, right,
                                        PagePrefetch(right.at, right.Bytes(), right.next));
}

/// scores[r][slots] = queries[r] · keys, times the keys' scales if there are any.
template <class Stored>
inline void PageScores(const float* queries, Index rows, const StoredPage& keys, Index dim,
                       float* scores) noexcept {
  const Index stride = DecodeKernels::query_stride(dim);
  const Index depth = (dim + Stored::terms - 1) / Stored::terms;
  MultiplyPage<Stored, Terms::columns>(
      {queries, stride, scores, tile}, rows,
      {static_cast<const std::byte*>(keys.numbers), depth, tile, depth, keys.slots, keys.next});
  if (keys.scales != nullptr) MultiplyColumns(scores, rows, keys.scales);
}

/// out[r][width] += probabilities[r] · values. With scales the probabilities are multiplied by
/// them, in place.
template <class Stored>
inline void PageAccumulateValues(float* probabilities, Index rows, const StoredPage& values,
                                 Index width, float* out) noexcept {
  if (values.scales != nullptr) MultiplyColumns(probabilities, rows, values.scales);
  constexpr Index group = word_gap * Stored::terms;
  const Index used = values.slots / group * word_gap + std::min(word_gap, values.slots % group);
  MultiplyPage<Stored, Terms::slots>(
      {probabilities, tile, out, width}, rows,
      {static_cast<const std::byte*>(values.numbers), tile / Stored::terms, values.width, used,
       width, values.next});
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
