// Attention of a few query rows of each head over a full page of int8, multiplied as integers
// (AVX512-VNNI).
//
// A query is rounded to fixed point, in steps of a power of two just above 2^-23 of its largest
// number, and split into three bytes; so are the probabilities of a page times the scales of their
// values. Products of bytes add up exactly in 32 bits and become floats once a page. The error is
// small next to that of storing keys and values as int8 (docs/exactness.md).
//
// Per 64 codes three instructions for each query row. As floats they would take four multiply-adds
// for each row, and eight more operations to become floats.
#if defined(RAPT_INT8_PAGE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_INT8_PAGE_INL_H
#undef RAPT_INT8_PAGE_INL_H
#else
#define RAPT_INT8_PAGE_INL_H
#endif

#include "kernels/decode/full_page-inl.h"
#include "kernels/decode/int8_query-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3

/// Broadcasts a word to all lanes.
HWY_INLINE VInts Everywhere(const std::byte* word) {
  std::int32_t number;
  std::memcpy(&number, word, sizeof number);
  return hn::Set(DInts(), number);
}

HWY_INLINE VInts LoadCodes(const std::byte* from) {
  return LoadInt8Words(reinterpret_cast<const std::int8_t*>(from));
}

/// Keys of a page, or of some of its slots.
struct Int8Keys {
  const std::byte* at;
  Index depth;  // words of a key
  const float* scales;
};

/// scores[r][slots] of `vectors` vectors of slots.
template <int rows, int vectors, class Stream>
HWY_INLINE void Int8Scores(const std::byte* queries, Index query_bytes, const Int8Keys& keys,
                           Stream& prefetch, float* scores) {
  const DF d;
  const VInts raise = hn::Set(DInts(), static_cast<std::int32_t>(0x80808080u));
  VInts sums[rows][vectors][digits];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
    for (int t = 0; t < digits; ++t) {
      const VInts start = Everywhere(queries + r * query_bytes + 4 * t);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v][t] = start;
    }
  }
  const std::byte* words = queries + sizeof(Int8QueryHeader);
  for (Index k = 0; k < keys.depth; ++k) {
    const std::byte* row = keys.at + k * tile * lane_bytes;
    prefetch.template Step<vectors>();
    VInts codes[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) codes[v] = hn::Xor(LoadCodes(row + 64 * v), raise);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
      for (int t = 0; t < digits; ++t) {
        const VInts digit = Everywhere(words + r * query_bytes + 16 * k + 4 * t);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v)
          sums[r][v][t] = AddInt8Products(sums[r][v][t], codes[v], digit);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    Int8QueryHeader about;
    std::memcpy(&about, queries + r * query_bytes, sizeof about);
    const VF step = hn::Set(d, about.step);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      // In this order: a step times a scale may be infinite where the sum is 0.
      const VF product = hn::Mul(Composed(sums[r][v]), step);
      hn::StoreU(hn::Mul(product, hn::LoadU(d, keys.scales + v * lane_count)), d,
                 scores + r * tile + v * lane_count);
    }
  }
}

/// Values, or some of their columns.
struct Int8Values {
  const std::byte* at;
  Index row_bytes;
};

/// All products of one row of values. Registers hold the digits of a single query row, or the codes
/// if there are several rows: there are not enough for both.
template <int rows, int vectors>
HWY_INLINE void AddInt8Row(const std::byte* codes, const std::byte* words,
                           VInts (&sums)[rows][vectors][digits]) {
  constexpr Index step = word_gap * lane_bytes;  // from one digit to the next
  if constexpr (rows == 1) {
    VInts digit[digits];
#pragma GCC unroll 3
    for (int t = 0; t < digits; ++t) digit[t] = Everywhere(words + t * step);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const VInts some = KeptInRegister(LoadCodes(codes + 64 * v));
#pragma GCC unroll 3
      for (int t = 0; t < digits; ++t)
        sums[0][v][t] = AddInt8Products(sums[0][v][t], digit[t], some);
    }
  } else {
    VInts some[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) some[v] = LoadCodes(codes + 64 * v);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
      for (int t = 0; t < digits; ++t) {
        const VInts digit = Everywhere(words + (r * digits + t) * step);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v)
          sums[r][v][t] = AddInt8Products(sums[r][v][t], digit, some[v]);
      }
    }
  }
}

/// out[r][columns] += weights[r] · values, of `vectors` vectors of columns.
template <int rows, int vectors, class Stream>
HWY_INLINE void Int8Accumulate(const Int8Weights& weights, Index first_row,
                               const Int8Values& values, Stream& prefetch, float* out,
                               Index width) {
  const DF d;
  VInts sums[rows][vectors][digits];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 3
      for (int t = 0; t < digits; ++t) sums[r][v][t] = hn::Zero(DInts());
    }
  }
  const auto* words = reinterpret_cast<const std::byte*>(weights.words[first_row]);
  for (Index i = 0; i < word_gap; ++i) {
    const std::byte* row = values.at + i * values.row_bytes;
    prefetch.template Step<vectors>();
    AddInt8Row(row, words + 4 * i, sums);
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    const VF step = hn::Set(d, weights.step[first_row + r]);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      float* to = out + r * width + v * lane_count;
      hn::StoreU(hn::MulAdd(Composed(sums[r][v]), step, hn::LoadU(d, to)), d, to);
    }
  }
}

/// Vectors of columns that have accumulators.
template <int rows>
inline constexpr int int8_vectors = 8 / rows;

/// The same for all columns, in narrower and narrower panels.
template <int rows, int vectors = int8_vectors<rows>, class Stream>
HWY_INLINE void Int8AccumulateAll(const Int8Weights& weights, Index first_row, Int8Values values,
                                  Stream& prefetch, float* out, Index width, Index columns) {
  for (; columns >= vectors * lane_count; columns -= vectors * lane_count) {
    Int8Accumulate<rows, vectors>(weights, first_row, values, prefetch, out, width);
    values.at += vectors * lane_count * lane_bytes;
    out += vectors * lane_count;
  }
  if constexpr (vectors > 1)
    Int8AccumulateAll<rows, vectors / 2>(weights, first_row, values, prefetch, out, width, columns);
}

/// Prefetches memory in address order into L2: scales are behind the values but read before them,
/// and a page takes less time than a miss. Speed as a fraction of plain reading, for 16 x 64; 16 x
/// 128 from memory: 0.87; 0.88. Into L1 0.80; 0.81, 4 KiB ahead 0.52; 0.81 and into the first 0.47;
/// 0.68, without prefetching 0.60; 0.81. 32 or 64 KiB are no better than 16.
class HeadPrefetch {
 public:
  HeadPrefetch(const FullPage& page, const std::byte* head)
      : at_(reinterpret_cast<std::uintptr_t>(head) + distance),
        end_(reinterpret_cast<std::uintptr_t>(page.head) +
             static_cast<std::uintptr_t>(page.heads * page.head_bytes)),
        jump_(reinterpret_cast<std::uintptr_t>(page.next) - end_) {}

  template <int vectors>
  HWY_INLINE void Step() {
    if (HWY_UNLIKELY(at_ >= end_)) {
      at_ += jump_;
      end_ = ~std::uintptr_t{0};
    }
#pragma GCC unroll 8
    for (std::uintptr_t line = 0; line < vectors; ++line)
      __builtin_prefetch(reinterpret_cast<const void*>(at_ + 64 * line), 0, 2);
    at_ += 64 * vectors;
  }

 private:
  static constexpr std::uintptr_t distance = 16 << 10;
  std::uintptr_t at_, end_, jump_;
};

/// Calls run(block, first row, prefetch) for rows in blocks of four, two and one. Only the first
/// block prefetches.
template <class Run>
HWY_INLINE void ForInt8Rows(Index rows, HeadPrefetch& prefetch, const Run& run) {
  NoPrefetch nothing;
  Index r = 0;
  const auto with = [&](auto count) {
    if (r == 0) {
      run(count, r, prefetch);
    } else {
      run(count, r, nothing);
    }
    r += decltype(count)::value;
  };
  while (rows - r >= 4) with(std::integral_constant<int, 4>());
  while (rows - r >= 2) with(std::integral_constant<int, 2>());
  if (rows > r) with(std::integral_constant<int, 1>());
}

/// One head of a page.
struct Int8Head {
  Int8Head(const FullPage& page, Index h)
      : keys(page.head + h * page.head_bytes),
        values(keys + page.value_offset),
        scales(reinterpret_cast<const float*>(keys + page.scale_offset)),
        queries(page.int8_queries + h * page.rows * int8_query_bytes(page.dim)) {}

  const std::byte* keys;
  const std::byte* values;
  const float* scales;  // of keys, then of values
  const std::byte* queries;
};

HWY_INLINE void ScoreInt8Head(const FullPage& page, const Int8Head& head, HeadPrefetch& stream,
                              float* scores) {
  const Index query_bytes = int8_query_bytes(page.dim), depth = (page.dim + 3) / 4;
  ForInt8Rows(page.rows, stream, [&](auto count, Index r, auto& prefetch) {
    constexpr int rows = decltype(count)::value;
    constexpr int vectors = std::min(4, int8_vectors<rows>);
    for (Index c = 0; c < tile; c += vectors * lane_count)
      Int8Scores<rows, vectors>(head.queries + r * query_bytes, query_bytes,
                                {head.keys + c * lane_bytes, depth, head.scales + c}, prefetch,
                                scores + r * tile + c);
  });
}

HWY_INLINE void AccumulateInt8Head(const FullPage& page, const Int8Head& head, HeadPrefetch& stream,
                                   const Int8Weights& weights, const SoftmaxTile& state) {
  const Int8Values all{head.values, page.value_width * lane_bytes};
  ForInt8Rows(page.rows, stream, [&](auto count, Index r, auto& prefetch) {
    Int8AccumulateAll<decltype(count)::value>(
        weights, r, all, prefetch, state.out + r * state.width, state.width, state.width);
  });
}

inline void AttendInt8Page(const FullPage& page) noexcept {
  alignas(64) float scores[FullPage::max_rows * tile];
  Int8Weights weights;
  for (Index h = 0; h < page.heads; ++h) {
    const Int8Head head(page, h);
    HeadPrefetch stream(page, head.keys);
    stream.Step<8>();  // the size of the scales: the products step over the rest
    ScoreInt8Head(page, head, stream, scores);
    SoftmaxWholeRows(scores, page.rows, page.states[h]);
    for (Index r = 0; r < page.rows; ++r)
      PackInt8Weights(scores + r * tile, head.scales + tile, r, weights);
    AccumulateInt8Head(page, head, stream, weights, page.states[h]);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
