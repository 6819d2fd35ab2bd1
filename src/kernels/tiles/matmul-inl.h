// The one micro-kernel, C = A B or C += A B on four rows, and the three products made of it.
//
// Traffic per call with depth k and n vectors: 4 k broadcasts and n k vector loads for 4 n k
// multiply-adds, 4 n stores. All operands are packed, so every address is a constant offset from
// two running pointers. The accumulators start at zero and are added to C once at the end: rounding
// errors of a chain stay those of its 64 terms.
#if defined(RAPT_MATMUL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_MATMUL_INL_H
#undef RAPT_MATMUL_INL_H
#else
#define RAPT_MATMUL_INL_H
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/tile.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Vectors per panel: as many as the register file holds next to the operands.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
inline constexpr int panel_vectors = 3;
#else
inline constexpr int panel_vectors = 4;
#endif
inline constexpr Index lane_count = hn::MaxLanes(DF());
inline constexpr Index panel_columns = panel_vectors * lane_count;

enum class Store { set, add };

/// Null clips: a whole tile.
HWY_INLINE Clip ClipOf(const Clip* clips, Index row) {
  return clips == nullptr ? whole_row : clips[row / strip];
}

template <int vectors, Index row_step>
HWY_INLINE void Step(VF (&acc)[strip][vectors], const float* HWY_RESTRICT a,
                     const float* HWY_RESTRICT b) {
  const DF d;
  VF right[vectors];
#pragma GCC unroll 8
  for (int n = 0; n < vectors; ++n) right[n] = hn::LoadU(d, b + n * lane_count);
#pragma GCC unroll 8
  for (int m = 0; m < strip; ++m) {
    const VF left = hn::Set(d, a[m * row_step]);
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) acc[m][n] = hn::MulAdd(left, right[n], acc[m][n]);
  }
}

/// Terms of one f32 chain in a product over `dim`. Twice as many would be a little faster and break
/// the error bound when all terms have one sign.
inline constexpr Index stretch = 16;

template <int vectors, Store store>
HWY_INLINE void StoreRows(const VF (&acc)[strip][vectors], float* HWY_RESTRICT c, Index c_stride) {
  const DF d;
#pragma GCC unroll 8
  for (int m = 0; m < strip; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) {
      float* to = c + m * c_stride + n * lane_count;
      if constexpr (store == Store::set) {
        hn::StoreU(acc[m][n], d, to);
      } else {
        hn::StoreU(hn::Add(hn::LoadU(d, to), acc[m][n]), d, to);
      }
    }
  }
}

/// C[4][vectors] over `depth`; A's element (m, k) is a[m * row_step + k * depth_step].
template <int vectors, Index row_step, Index depth_step, Store store>
HWY_INLINE void Micro(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, Index b_stride,
                      Index depth, float* HWY_RESTRICT c, Index c_stride) {
  const DF d;
  VF acc[strip][vectors];
#pragma GCC unroll 8
  for (int m = 0; m < strip; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) acc[m][n] = hn::Zero(d);
  }
  Index k = 0;
  for (; k + 8 <= depth; k += 8) {
#pragma GCC unroll 8
    for (Index i = 0; i < 8; ++i)
      Step<vectors, row_step>(acc, a + i * depth_step, b + i * b_stride);
    a += 8 * depth_step;
    b += 8 * b_stride;
  }
  for (; k < depth; ++k) {
    Step<vectors, row_step>(acc, a, b);
    a += depth_step;
    b += b_stride;
  }
  StoreRows<vectors, store>(acc, c, c_stride);
}

/// One whole stretch, straight-line: the first step multiplies where the others add.
template <int vectors, Index row_step, Index depth_step, Store store>
HWY_INLINE void MicroStretch(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                             Index b_stride, float* HWY_RESTRICT c, Index c_stride) {
  const DF d;
  VF acc[strip][vectors];
#pragma GCC unroll 8
  for (int m = 0; m < strip; ++m) {
    const VF left = hn::Set(d, a[m * row_step]);
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) acc[m][n] = hn::Mul(left, hn::LoadU(d, b + n * lane_count));
  }
#pragma GCC unroll 16
  for (Index k = 1; k < stretch; ++k) {
    Step<vectors, row_step>(acc, a + k * depth_step, b + k * b_stride);
  }
  StoreRows<vectors, store>(acc, c, c_stride);
}

/// The same with the depth in stretches, each summed from zero.
template <int vectors, Index row_step, Index depth_step>
HWY_INLINE void MicroStretches(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                               Index b_stride, Index depth, float* HWY_RESTRICT c, Index c_stride) {
  if (depth < stretch)
    return Micro<vectors, row_step, depth_step, Store::set>(a, b, b_stride, depth, c, c_stride);
  MicroStretch<vectors, row_step, depth_step, Store::set>(a, b, b_stride, c, c_stride);
  Index k = stretch;
  for (; k + stretch <= depth; k += stretch) {
    a += stretch * depth_step;
    b += stretch * b_stride;
    MicroStretch<vectors, row_step, depth_step, Store::add>(a, b, b_stride, c, c_stride);
  }
  if (k < depth) {
    Micro<vectors, row_step, depth_step, Store::add>(
        a + stretch * depth_step, b + stretch * b_stride, b_stride, depth - k, c, c_stride);
  }
}

/// Operands and result of a product, strip by strip.
struct StripWalk {
  const float* a;
  Index a_step;  // from strip to strip
  const float* b;
  Index b_stride;
  float* c;
  Index c_step;
  Index c_stride;
};

/// Whether the vectors of a product span its whole panel, which makes every address of the right
/// operand a constant offset.
enum class Span { panel, part };

/// Every strip over the whole depth: the loop that carries nearly all flops.
template <int vectors, Index row_step, Index depth_step, Store store, Span span>
inline HWY_NOINLINE void WholeStrips(const StripWalk& walk, Index depth, Index row_strips) {
  const Index b_stride = span == Span::panel ? vectors * lane_count : walk.b_stride;
  for (Index s = 0; s < row_strips; ++s) {
    const float* a = walk.a + s * walk.a_step;
    float* c = walk.c + s * walk.c_step;
    if constexpr (store == Store::set) {
      MicroStretches<vectors, row_step, depth_step>(a, walk.b, b_stride, depth, c, walk.c_stride);
    } else {
      Micro<vectors, row_step, depth_step, store>(a, walk.b, b_stride, depth, c, walk.c_stride);
    }
  }
}

template <Index row_step, Index depth_step, Store store, Span span = Span::panel>
HWY_INLINE void Strips(Index vectors, const StripWalk& walk, Index depth, Index row_strips) {
  switch (vectors) {
    case 1:
      return WholeStrips<1, row_step, depth_step, store, span>(walk, depth, row_strips);
    case 2:
      return WholeStrips<2, row_step, depth_step, store, span>(walk, depth, row_strips);
    case 3:
      return WholeStrips<3, row_step, depth_step, store, span>(walk, depth, row_strips);
    default:
      if constexpr (panel_vectors >= 4) {
        return WholeStrips<4, row_step, depth_step, store, span>(walk, depth, row_strips);
      }
  }
}

/// Strips from s on with the same clip, which most strips of a mask have; they are multiplied
/// together.
HWY_INLINE Index StripsAlike(const Clip* clips, Index s, Index row_strips) {
  Index end = s + 1;
  while (end < row_strips && clips[end].begin == clips[s].begin && clips[end].end == clips[s].end)
    ++end;
  return end - s;
}

/// Depths first .. first + count - 1 of a product over `depth` in all.
struct DepthBlock {
  Index depth, first, count;
};

/// S[64][64] = A B over a block of the depth: A in strips, B in panels of columns.
HWY_INLINE void ScoresOfBlock(const float* a, const float* b, const DepthBlock& block,
                              Index row_strips, const Clip* clips, float* scores) {
  for (Index first = 0; first < tile; first += panel_columns) {
    const Index width = std::min(panel_columns, tile - first);
    const float* panel = b + first * block.depth + block.first * width;
    StripWalk walk{a + block.first * strip, strip * block.depth, panel, width,
                   scores + first,          strip * tile,        tile};
    if (clips == nullptr) {
      Strips<1, strip, Store::set>(width / lane_count, walk, block.count, row_strips);
      continue;
    }
    for (Index s = 0, alike; s < row_strips; s += alike) {
      alike = StripsAlike(clips, s, row_strips);
      const Index begin = std::max(first, clips[s].begin);
      const Index end = std::min(first + width, clips[s].end);
      if (begin >= end) continue;
      walk.a = a + block.first * strip + s * strip * block.depth;
      walk.b = panel + begin - first;
      walk.c = scores + s * strip * tile + begin;
      const Index vectors = (end - begin) / lane_count;
      if (end - begin == width) {
        Strips<1, strip, Store::set>(vectors, walk, block.count, alike);
      } else {
        Strips<1, strip, Store::set, Span::part>(vectors, walk, block.count, alike);
      }
    }
  }
}

/// scores += more, two tiles
inline void AddTile(float* scores, Index row_strips, const Clip* clips,
                    const float* more) noexcept {
  const DF d;
  for (Index r = 0; r < row_strips * strip; ++r) {
    const Clip clip = ClipOf(clips, r);
    for (Index c = clip.begin; c < clip.end; c += lane_count) {
      float* at = scores + r * tile + c;
      hn::Store(hn::Add(hn::Load(d, at), hn::LoadU(d, more + r * tile + c)), d, at);
    }
  }
}

/// Chains are added in order, and the error of many additions accumulates: beyond this depth blocks
/// are summed apart first.
inline constexpr Index depth_block = 128;

/// S[64][64] = A B over `depth`.
inline void Scores(const float* a, const float* b, Index depth, Index row_strips, const Clip* clips,
                   float* scores) noexcept {
  ScoresOfBlock(a, b, {depth, 0, std::min(depth, depth_block)}, row_strips, clips, scores);
  for (Index first = depth_block; first < depth; first += depth_block) {
    HWY_ALIGN float part[tile * tile];
    ScoresOfBlock(a, b, {depth, first, std::min(depth - first, depth_block)}, row_strips, clips,
                  part);
    AddTile(scores, row_strips, clips, part);
  }
}

/// C[64][width] += S B, row_step and depth_step saying how S is read: along its rows, each strip of
/// queries over its clip of keys, or along its columns, each strip of keys over its clip of
/// queries.
template <Index row_step, Index depth_step>
HWY_INLINE void AccumulateStrips(const float* scores, const float* rows, Index width,
                                 Index row_strips, const Clip* clips, float* out) {
  for (Index first = 0; first < width; first += panel_columns) {
    const Index columns = std::min(panel_columns, width - first);
    StripWalk walk{
        scores, strip * row_step, rows + first * tile, columns, out + first, strip * width, width};
    if (clips == nullptr) {
      Strips<row_step, depth_step, Store::add>(columns / lane_count, walk, tile, row_strips);
      continue;
    }
    for (Index s = 0, alike; s < row_strips; s += alike) {
      alike = StripsAlike(clips, s, row_strips);
      const Clip clip = clips[s];
      if (clip.begin >= clip.end) continue;
      walk.a = scores + s * strip * row_step + clip.begin * depth_step;
      walk.b = rows + first * tile + clip.begin * columns;
      walk.c = out + s * strip * width + first;
      Strips<row_step, depth_step, Store::add>(columns / lane_count, walk, clip.end - clip.begin,
                                               alike);
    }
  }
}

inline void AccumulateValues(const float* scores, const float* rows, Index width, Index row_strips,
                             const Clip* clips, float* out) noexcept {
  AccumulateStrips<tile, 1>(scores, rows, width, row_strips, clips, out);
}

inline void AccumulateTransposed(const float* scores, const float* rows, Index width,
                                 const Clip* query_clips, float* out) noexcept {
  AccumulateStrips<1, tile>(scores, rows, width, strips, query_clips, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
