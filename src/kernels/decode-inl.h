// Products of a few query rows with cached tiles: every key and value is read once, and the reading
// is what takes the time. Rows go in blocks of four, two or one; the fewer they are, the more
// terms of the sum run side by side, so that twelve accumulators are always busy.
#if defined(RAPT_DECODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_DECODE_INL_H
#undef RAPT_DECODE_INL_H
#else
#define RAPT_DECODE_INL_H
#endif

#include "kernels/number-inl.h"
#include "kernels/pair_pack-inl.h"
#include "kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// How far ahead of its use memory is asked for. Values follow their keys, so one stream runs
/// through both.
inline constexpr Index prefetch_bytes = 2048;

template <int vectors>
HWY_INLINE void PrefetchRow(const void* b, Index number_bytes) {
  const char* ahead = static_cast<const char*>(b) + prefetch_bytes;
#pragma GCC unroll 8
  for (Index line = 0; line < vectors * lane_count * number_bytes; line += 64)
    __builtin_prefetch(ahead + line);
}

/// A right operand with one term of the sum in each row.
template <class T>
struct PlainRight {
  static constexpr int terms = 1;
  static constexpr Index step = 1, term_step = 1;  // in the left operand: row to row, term to term
  static constexpr Index lane_bytes = sizeof(T);
  const T* b;
  Index stride;
  HWY_INLINE const T* At(Index row) const { return b + row * stride; }
  HWY_INLINE VF Load(Index row, int v, int) const {
    return LoadFloats(DF(), At(row) + v * lane_count);
  }
};

/// One with pairs of terms in each row of words.
template <Index step_, Index term_step_>
struct PairRight {
  static constexpr int terms = 2;
  static constexpr Index step = step_, term_step = term_step_;
  static constexpr Index lane_bytes = 2 * sizeof(Bf16);
  const Bf16* b;
  Index stride;  // in words
  HWY_INLINE const Bf16* At(Index row) const { return b + 2 * row * stride; }
  HWY_INLINE VF Load(Index row, int v, int term) const {
    const auto words = LoadWords(DWords(), At(row) + 2 * v * lane_count);
    return term == 0 ? FirstOfPairs(DF(), words) : SecondOfPairs(DF(), words);
  }
};
using KeyPairs = PairRight<2, 1>;
using ValuePairs = PairRight<1, pair_gap>;

/// Sums that run side by side for each row and vector.
template <int rows>
inline constexpr int side_by_side = 4 / rows;

/// All terms of one row of the right operand, the n-th into part[n % parts], counted from `first`.
template <int rows, int vectors, int parts, class Right>
HWY_INLINE void ThinRow(const float* a, Index a_stride, const Right& right, Index k, int first,
                        VF (&part)[parts][rows][vectors]) {
  const DF d;
#pragma GCC unroll 4
  for (int t = 0; t < Right::terms; ++t) {
    VF x[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) x[v] = right.Load(k, v, t);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const VF left = hn::Set(d, a[r * a_stride + k * Right::step + t * Right::term_step]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        VF& sum = part[(first + t) % parts][r][v];
        sum = hn::MulAdd(left, x[v], sum);
      }
    }
  }
}

/// acc[r][v] = the sum over `depth` rows of the right operand.
template <int rows, int vectors, class Right>
HWY_INLINE void ThinProduct(const float* a, Index a_stride, const Right& right, Index depth,
                            VF (&acc)[rows][vectors]) {
  constexpr int parts = side_by_side<rows>;
  constexpr int together = std::max(1, parts / Right::terms);
  const DF d;
  VF part[parts][rows][vectors];
#pragma GCC unroll 4
  for (int s = 0; s < parts; ++s) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) part[s][r][v] = hn::Zero(d);
    }
  }
  Index k = 0;
  for (; k + together <= depth; k += together) {
#pragma GCC unroll 4
    for (int i = 0; i < together; ++i) {
      PrefetchRow<vectors>(right.At(k + i), Right::lane_bytes);
      ThinRow(a, a_stride, right, k + i, i * Right::terms, part);
    }
  }
  for (Index rest = depth % together; rest > 0; --rest, ++k)
    ThinRow(a, a_stride, right, k, 0, part);
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      if constexpr (parts == 4) {
        acc[r][v] =
            hn::Add(hn::Add(part[0][r][v], part[1][r][v]), hn::Add(part[2][r][v], part[3][r][v]));
      } else if constexpr (parts == 2) {
        acc[r][v] = hn::Add(part[0][r][v], part[1][r][v]);
      } else {
        acc[r][v] = part[0][r][v];
      }
    }
  }
}

/// Rows of a left operand and of a result.
struct ThinRows {
  const float* a;
  Index a_stride;
  float* out;
  Index out_stride;
};

/// out[r][v] (+)= the product over the whole depth, in blocks of `block` rows of the right operand.
template <int rows, int vectors, class Right>
HWY_INLINE void ThinBlocks(const ThinRows& at, Right right, Index depth, Index block, Store store) {
  const DF d;
  for (Index k = 0; k < depth; k += block) {
    VF acc[rows][vectors];
    ThinProduct<rows>(at.a + k * Right::step, at.a_stride, right, std::min(block, depth - k), acc);
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) {
        float* to = at.out + r * at.out_stride + v * lane_count;
        const bool add = store == Store::add || k > 0;
        hn::StoreU(add ? hn::Add(hn::LoadU(d, to), acc[r][v]) : acc[r][v], d, to);
      }
    }
    right.b = right.At(block);
  }
}

/// A panel of either product, `vectors` wide.
template <int rows, class Right>
HWY_INLINE void ThinPanel(Index vectors, const ThinRows& at, const Right& right, Index depth,
                          Index block, Store store) {
  switch (vectors) {
    case 1:
      return ThinBlocks<rows, 1>(at, right, depth, block, store);
    case 2:
      return ThinBlocks<rows, 2>(at, right, depth, block, store);
    case 3:
      return ThinBlocks<rows, 3>(at, right, depth, block, store);
    default:
      if constexpr (panel_vectors >= 4) return ThinBlocks<rows, 4>(at, right, depth, block, store);
  }
}

/// Calls with(std::integral_constant rows, first row) for blocks of four, two and one.
template <class With>
HWY_INLINE void ForEachRowBlock(Index rows, const With& with) {
  Index r = 0;
  for (; r + 4 <= rows; r += 4) with(std::integral_constant<int, 4>(), r);
  for (; r + 2 <= rows; r += 2) with(std::integral_constant<int, 2>(), r);
  for (; r < rows; ++r) with(std::integral_constant<int, 1>(), r);
}

/// numbers[r][c] *= factors[c]
HWY_INLINE void MultiplyColumns(float* numbers, Index rows, const float* factors) {
  const DF d;
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < tile; c += lane_count) {
      float* at = numbers + r * tile + c;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), hn::LoadU(d, factors + c)), d, at);
    }
  }
}

HWY_INLINE Index QueryStride(Index dim) {
  return (dim + Kernels::thin_step - 1) / Kernels::thin_step * Kernels::thin_step;
}

/// One panel of scores for all rows, each chain of sums no longer than a stretch.
template <class Right>
HWY_INLINE void ThinScorePanel(const float* queries, Index rows, Index stride, const Right& right,
                               Index depth, Index width, float* scores) {
  ForEachRowBlock(rows, [&](auto count, Index r) {
    constexpr int block = decltype(count)::value;
    ThinPanel<block>(width / lane_count, {queries + r * stride, stride, scores + r * tile, tile},
                     right, depth, stretch * side_by_side<block> / Right::terms, Store::set);
  });
}

/// One panel of the output for all rows: out += probabilities · values.
template <class Right>
HWY_INLINE void ThinGatherPanel(const float* probabilities, Index rows, const Right& right,
                                Index depth, Index columns, float* out, Index out_stride) {
  ForEachRowBlock(rows, [&](auto count, Index r) {
    ThinPanel<decltype(count)::value>(
        columns / lane_count, {probabilities + r * tile, tile, out + r * out_stride, out_stride},
        right, depth, depth, Store::add);
  });
}

/// scores[r][64] = queries[r] · keys, times the keys' scales if there are any.
template <class T>
inline void ThinScores(const float* queries, Index rows, const void* keys, const float* scales,
                       Index dim, float* scores) noexcept {
  for (Index first = 0; first < tile; first += panel_columns) {
    const Index width = std::min(panel_columns, tile - first);
    const PlainRight<T> panel{static_cast<const T*>(keys) + first * dim, width};
    ThinScorePanel(queries, rows, QueryStride(dim), panel, dim, width, scores + first);
  }
  if (scales != nullptr) MultiplyColumns(scores, rows, scales);
}

/// out[r][width] += probabilities[r] · values. With scales the probabilities are multiplied by
/// them, in place.
template <class T>
inline void ThinGather(float* probabilities, Index rows, const void* values, const float* scales,
                       Index, Index width, float* out) noexcept {
  if (scales != nullptr) MultiplyColumns(probabilities, rows, scales);
  for (Index first = 0; first < width; first += panel_columns) {
    const Index columns = std::min(panel_columns, width - first);
    const PlainRight<T> panel{static_cast<const T*>(values) + first * tile, columns};
    ThinGatherPanel(probabilities, rows, panel, tile, columns, out + first, width);
  }
}

inline void ThinScorePairs(const float* queries, Index rows, const void* keys, const float*,
                           Index dim, float* scores) noexcept {
  for (Index first = 0; first < tile; first += panel_columns) {
    const Index width = std::min(panel_columns, tile - first);
    const KeyPairs panel{static_cast<const Bf16*>(keys) + 2 * first, tile};
    ThinScorePanel(queries, rows, QueryStride(dim), panel, (dim + 1) / 2, width, scores + first);
  }
}

inline void ThinGatherPairs(float* probabilities, Index rows, const void* values, const float*,
                            Index value_width, Index width, float* out) noexcept {
  for (Index first = 0; first < width; first += panel_columns) {
    const Index columns = std::min(panel_columns, width - first);
    for (Index pair = 0; pair < pair_rows; pair += pair_gap) {
      const auto* words = static_cast<const Bf16*>(values) + 2 * (pair * value_width + first);
      ThinGatherPanel(probabilities + first_slot_of_pair(pair), rows,
                      ValuePairs{words, value_width}, pair_gap, columns, out + first, width);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
