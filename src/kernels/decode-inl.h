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
#include "kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// How far ahead of its use memory is asked for. Values follow their keys, so one stream runs
/// through both.
inline constexpr Index prefetch_bytes = 2048;

template <int vectors, class T>
HWY_INLINE void PrefetchRow(const T* b) {
  constexpr Index bytes = vectors * lane_count * static_cast<Index>(sizeof(T));
  const char* ahead = reinterpret_cast<const char*>(b) + prefetch_bytes;
#pragma GCC unroll 8
  for (Index line = 0; line < bytes; line += 64) __builtin_prefetch(ahead + line);
}

/// acc[r][v] = sum over `depth` of a[r * a_stride + k] * b[k * b_stride + v], each of the `split`
/// partial sums from zero.
template <int rows, int vectors, class T>
HWY_INLINE void ThinProduct(const float* a, Index a_stride, const T* b, Index b_stride, Index depth,
                            VF (&acc)[rows][vectors]) {
  constexpr int split = 4 / rows;
  const DF d;
  VF part[split][rows][vectors];
#pragma GCC unroll 4
  for (int s = 0; s < split; ++s) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) part[s][r][v] = hn::Zero(d);
    }
  }
  Index k = 0;
  for (; k + split <= depth; k += split) {
#pragma GCC unroll 4
    for (int s = 0; s < split; ++s) {
      PrefetchRow<vectors>(b + (k + s) * b_stride);
      VF right[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        right[v] = LoadFloats(d, b + (k + s) * b_stride + v * lane_count);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        const VF left = hn::Set(d, a[r * a_stride + k + s]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) part[s][r][v] = hn::MulAdd(left, right[v], part[s][r][v]);
      }
    }
  }
  for (Index rest = depth % split; rest > 0; --rest, ++k) {
    for (int v = 0; v < vectors; ++v) {
      const VF right = LoadFloats(d, b + k * b_stride + v * lane_count);
      for (int r = 0; r < rows; ++r)
        part[0][r][v] = hn::MulAdd(hn::Set(d, a[r * a_stride + k]), right, part[0][r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      if constexpr (split == 4) {
        acc[r][v] =
            hn::Add(hn::Add(part[0][r][v], part[1][r][v]), hn::Add(part[2][r][v], part[3][r][v]));
      } else if constexpr (split == 2) {
        acc[r][v] = hn::Add(part[0][r][v], part[1][r][v]);
      } else {
        acc[r][v] = part[0][r][v];
      }
    }
  }
}

/// out[r][v] (+)= the product over the whole depth, in blocks of `block` terms.
template <int rows, int vectors, class T>
HWY_INLINE void ThinBlocks(const float* a, Index a_stride, const T* b, Index b_stride, Index depth,
                           Index block, bool add, float* out, Index out_stride) {
  const DF d;
  for (Index k = 0; k < depth; k += block) {
    VF acc[rows][vectors];
    ThinProduct<rows>(a + k, a_stride, b + k * b_stride, b_stride, std::min(block, depth - k), acc);
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) {
        float* to = out + r * out_stride + v * lane_count;
        hn::StoreU(add || k > 0 ? hn::Add(hn::LoadU(d, to), acc[r][v]) : acc[r][v], d, to);
      }
    }
  }
}

/// A panel of either product, `vectors` wide.
template <int rows, class T>
HWY_INLINE void ThinPanel(Index vectors, const float* a, Index a_stride, const T* b, Index b_stride,
                          Index depth, Index block, bool add, float* out, Index out_stride) {
  switch (vectors) {
    case 1:
      return ThinBlocks<rows, 1>(a, a_stride, b, b_stride, depth, block, add, out, out_stride);
    case 2:
      return ThinBlocks<rows, 2>(a, a_stride, b, b_stride, depth, block, add, out, out_stride);
    case 3:
      return ThinBlocks<rows, 3>(a, a_stride, b, b_stride, depth, block, add, out, out_stride);
    default:
      if constexpr (panel_vectors >= 4)
        return ThinBlocks<rows, 4>(a, a_stride, b, b_stride, depth, block, add, out, out_stride);
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

/// scores[r][64] = queries[r] · keys, times the keys' scales if there are any.
template <class T>
void ThinScores(const float* queries, Index rows, const void* keys, const float* scales, Index dim,
                float* scores) noexcept {
  for (Index first = 0; first < tile; first += panel_columns) {
    const Index width = std::min(panel_columns, tile - first);
    const T* panel = static_cast<const T*>(keys) + first * dim;
    ForEachRowBlock(rows, [&](auto block, Index r) {
      constexpr int count = decltype(block)::value;
      ThinPanel<count>(width / lane_count, queries + r * dim, dim, panel, width, dim,
                       stretch * (4 / count), false, scores + r * tile + first, tile);
    });
  }
  if (scales != nullptr) MultiplyColumns(scores, rows, scales);
}

/// out[r][width] += probabilities[r] · values. With scales the probabilities are multiplied by
/// them, in place.
template <class T>
void ThinGather(float* probabilities, Index rows, const void* values, const float* scales,
                Index width, float* out) noexcept {
  if (scales != nullptr) MultiplyColumns(probabilities, rows, scales);
  for (Index first = 0; first < width; first += panel_columns) {
    const Index columns = std::min(panel_columns, width - first);
    const T* panel = static_cast<const T*>(values) + first * tile;
    ForEachRowBlock(rows, [&](auto block, Index r) {
      constexpr int count = decltype(block)::value;
      ThinPanel<count>(columns / lane_count, probabilities + r * tile, tile, panel, columns, tile,
                       tile, true, out + r * width + first, width);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
