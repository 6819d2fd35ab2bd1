// Products of bf16 operands: one block of 16 rows by up to 64 columns, on three engines, and the
// products over tiles made of it.
#if defined(RAPT_BF16_MATMUL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BF16_MATMUL_INL_H
#undef RAPT_BF16_MATMUL_INL_H
#else
#define RAPT_BF16_MATMUL_INL_H
#endif

#include "kernels/bf16_kernels.h"
#include "kernels/cpu_features.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

/// C[16][columns] = or += A B: A's rows are `a_stride` numbers apart, B's rows of words `b_stride`.
struct Bf16Block {
  const Bf16* a;
  Index a_stride;
  const Bf16* b;
  Index b_stride;
  Index half_depth;  // a multiple of 16
  float* c;
  Index c_stride;
  Index columns;            // a multiple of 16, at most 64
  Index rows = block_rows;  // of the result; others may be left out
};

/// The two numbers of each word.
HWY_INLINE VF LowNumbers(VU words) { return hn::BitCast(DF(), hn::ShiftLeft<16>(words)); }
HWY_INLINE VF HighNumbers(VU words) {
  return hn::BitCast(DF(), hn::And(words, hn::Set(DU(), 0xFFFF0000u)));
}

/// The upper halves of two vectors in one, those of the first in the low halves.
HWY_INLINE VU JoinedHalves(VU low, VU high) {
#if HWY_TARGET == HWY_AVX3
  // One shuffle that leaves every other half alone, instead of a shift and a blend.
  const __m512i upper_half = _mm512_set4_epi32(0x0F0E, 0x0B0A, 0x0706, 0x0302);
  return VU{_mm512_mask_shuffle_epi8(high.raw, 0x3333333333333333u, low.raw, upper_half)};
#else
  return hn::Or(hn::ShiftRight<16>(low), hn::And(high, hn::Set(DU(), 0xFFFF0000u)));
#endif
}

/// Two vectors rounded to bf16, the first in the low halves. Ties go away from zero. A NaN whose
/// upper bits are all ones would wrap: those are replaced where the caller's numbers of other types
/// are packed.
HWY_INLINE VU RoundedBf16(VF low, VF high) {
  const DU d;
  const VU half = hn::Set(d, 0x8000u);
  return JoinedHalves(hn::Add(hn::BitCast(d, low), half), hn::Add(hn::BitCast(d, high), half));
}

/// Highway's own instructions: runs anywhere, and tests the rest of this code.
struct PortableBf16 {
  static constexpr const char* name = "portable";
  static constexpr Index panel = tile;  // columns that a matrix is packed in
  static void Begin() noexcept {}
  static void End() noexcept {}

  template <int rows, int vectors>
  static HWY_INLINE void Step(const Bf16* a, Index a_stride, const Bf16* b,
                              VF (&acc)[rows][vectors]) {
    const DF d;
    VF low[vectors], high[vectors];
    for (int v = 0; v < vectors; ++v) {
      const auto* words = reinterpret_cast<const std::uint32_t*>(b) + v * lane_count;
      low[v] = LowNumbers(hn::LoadU(DU(), words));
      high[v] = HighNumbers(hn::LoadU(DU(), words));
    }
    for (int r = 0; r < rows; ++r) {
      const VF first = hn::Set(d, static_cast<float>(a[r * a_stride]));
      const VF second = hn::Set(d, static_cast<float>(a[r * a_stride + 1]));
      for (int v = 0; v < vectors; ++v)
        acc[r][v] = hn::MulAdd(second, high[v], hn::MulAdd(first, low[v], acc[r][v]));
    }
  }

  template <Store store>
  static HWY_INLINE void Multiply(const Bf16Block& x) {
    constexpr int rows = 2;
    constexpr int vectors = lane_count == 16 ? 1 : 2;
    const DF d;
    for (Index r = 0; r < x.rows; r += rows) {
      for (Index column = 0; column < x.columns; column += vectors * lane_count) {
        VF acc[rows][vectors];
        float* c = x.c + r * x.c_stride + column;
        for (int i = 0; i < rows; ++i) {
          for (int v = 0; v < vectors; ++v) {
            acc[i][v] = store == Store::add ? hn::LoadU(d, c + i * x.c_stride + v * lane_count)
                                            : hn::Zero(d);
          }
        }
        for (Index k = 0; k < x.half_depth; ++k)
          Step(x.a + r * x.a_stride + 2 * k, x.a_stride, x.b + k * x.b_stride + 2 * column, acc);
        for (int i = 0; i < rows; ++i) {
          for (int v = 0; v < vectors; ++v)
            hn::StoreU(acc[i][v], d, c + i * x.c_stride + v * lane_count);
        }
      }
    }
  }

  static double PeakLoop(Index iterations) noexcept;
};

#if HWY_TARGET == HWY_AVX3

/// Sixteen sums of two products each; assembly because Highway's AVX-512 target does not include
/// the extension.
HWY_INLINE VF AddBf16Products(VF sum, VU words, VU factors) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(words.raw), "v"(factors.raw));
  return sum;
}

/// The products of AVX512-BF16. On Intel's cores they are half as fast as f32 multiply-adds.
struct Avx512Bf16 {
  static constexpr const char* name = "AVX512-BF16";
  static constexpr Index panel = 48;  // with eight rows 24 sums, as many as there are registers for
  static void Begin() noexcept {}
  static void End() noexcept {}

  template <Store store, int vectors, int rows>
  static HWY_INLINE void Rows(const Bf16Block& x, Index r) {
    const DF d;
    VF acc[rows][vectors];
    float* c = x.c + r * x.c_stride;
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        acc[i][v] =
            store == Store::add ? hn::LoadU(d, c + i * x.c_stride + v * lane_count) : hn::Zero(d);
    }
    const auto* a = reinterpret_cast<const std::uint32_t*>(x.a + r * x.a_stride);
    for (Index k = 0; k < x.half_depth; ++k) {
      const auto* words = reinterpret_cast<const std::uint32_t*>(x.b + k * x.b_stride);
      VU right[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) right[v] = hn::LoadU(DU(), words + v * lane_count);
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) {
        const VU left = hn::Set(DU(), a[i * x.a_stride / 2 + k]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) acc[i][v] = AddBf16Products(acc[i][v], right[v], left);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        hn::StoreU(acc[i][v], d, c + i * x.c_stride + v * lane_count);
    }
  }

  /// As many rows at a time as there are registers for; fewer rows cost less.
  template <Store store, int vectors>
  static HWY_INLINE void AllRows(const Bf16Block& x) {
    constexpr int most = vectors == 4 ? 4 : 8;
    Index r = 0;
    for (; r + most / 2 < x.rows; r += most) Rows<store, vectors, most>(x, r);
    if (most == 8 && r + 2 < x.rows) return Rows<store, vectors, 4>(x, r);
    if (r + 1 < x.rows) return Rows<store, vectors, 2>(x, r);
    if (r < x.rows) Rows<store, vectors, 1>(x, r);
  }

  template <Store store>
  static HWY_INLINE void Multiply(const Bf16Block& x) {
    switch (x.columns / lane_count) {
      case 1:
        return AllRows<store, 1>(x);
      case 2:
        return AllRows<store, 2>(x);
      case 3:
        return AllRows<store, 3>(x);
      default:
        return AllRows<store, 4>(x);
    }
  }

  static double PeakLoop(Index iterations) noexcept;
};

/// The tile unit: four sums, one left and three right operands fill its registers.
struct AmxBf16 {
  static constexpr const char* name = "AMX";
  static constexpr Index panel = tile;
  static void Begin() noexcept { Tiles::configure(); }
  static void End() noexcept { Tiles::release(); }

  template <Store store, int column_tiles, int t = 0>
  static HWY_INLINE void Open(const Bf16Block& x) {
    if constexpr (t < column_tiles) {
      if constexpr (store == Store::add) {
        Tiles::load<t>(x.c + t * 16, x.c_stride * 4);
      } else {
        Tiles::zero<t>();
      }
      Open<store, column_tiles, t + 1>(x);
    }
  }
  template <int column_tiles, int t = 0>
  static HWY_INLINE void Step(const Bf16* b, Index b_bytes) {
    if constexpr (t < column_tiles) {
      Tiles::load<5 + t % 3>(b + t * 32, b_bytes);
      Tiles::multiply<t, 4, 5 + t % 3>();
      Step<column_tiles, t + 1>(b, b_bytes);
    }
  }
  template <int column_tiles, int t = 0>
  static HWY_INLINE void Close(const Bf16Block& x) {
    if constexpr (t < column_tiles) {
      Tiles::store<t>(x.c + t * 16, x.c_stride * 4);
      Close<column_tiles, t + 1>(x);
    }
  }

  template <Store store, int column_tiles>
  static HWY_INLINE void MultiplyTiles(const Bf16Block& x) {
    Open<store, column_tiles>(x);
    for (Index k = 0; k < x.half_depth; k += 16) {
      Tiles::load<4>(x.a + 2 * k, x.a_stride * 2);
      Step<column_tiles>(x.b + k * x.b_stride, x.b_stride * 2);
    }
    Close<column_tiles>(x);
  }

  template <Store store>
  static HWY_INLINE void Multiply(const Bf16Block& x) {
    switch (x.columns / 16) {
      case 1:
        return MultiplyTiles<store, 1>(x);
      case 2:
        return MultiplyTiles<store, 2>(x);
      case 3:
        return MultiplyTiles<store, 3>(x);
      default:
        return MultiplyTiles<store, 4>(x);
    }
  }

  static double PeakLoop(Index iterations) noexcept;
};

#endif

/// Columns that a block of 16 rows touches, in multiples of 32.
HWY_INLINE Clip BlockClip(const Clip* clips, Index row) {
  if (clips == nullptr) return whole_row;
  Clip all{tile, 0};
  for (Index s = row / strip; s < (row + block_rows) / strip; ++s) {
    if (clips[s].end == 0) continue;
    all = {std::min(all.begin, clips[s].begin), std::max(all.end, clips[s].end)};
  }
  return all.end == 0 ? Clip{} : Clip{all.begin / 32 * 32, (all.end + 31) / 32 * 32};
}

/// scores[16][64] of a block of rows inside the clip.
template <class Engine>
HWY_INLINE void ScoreBlock(const Bf16* left, Index depth, const Bf16* panels, Clip clip,
                           float* scores) {
  Engine::template Multiply<Store::set>({.a = left,
                                         .a_stride = depth,
                                         .b = panels + 2 * clip.begin,
                                         .b_stride = 2 * tile,
                                         .half_depth = depth / 2,
                                         .c = scores + clip.begin,
                                         .c_stride = tile,
                                         .columns = clip.end - clip.begin});
}

/// out[16][width] += left[16][64 in the clip] · rows
template <class Engine>
HWY_INLINE void AccumulateBlock(const Bf16* left, const Bf16* right_rows, Index width, Clip clip,
                                float* out) {
  for (Index column = 0; column < width; column += tile) {
    Engine::template Multiply<Store::add>({.a = left + clip.begin,
                                           .a_stride = tile,
                                           .b = right_rows + clip.begin * width + 2 * column,
                                           .b_stride = 2 * width,
                                           .half_depth = (clip.end - clip.begin) / 2,
                                           .c = out + column,
                                           .c_stride = width,
                                           .columns = std::min(tile, width - column)});
  }
}

template <class Engine>
inline void Bf16Scores(const Bf16* left, Index depth, const Bf16* panels, Index rows,
                       const Clip* clips, float* scores) noexcept {
  for (Index r = 0; r < rows; r += block_rows) {
    const Clip clip = BlockClip(clips, r);
    if (clip.end > 0) ScoreBlock<Engine>(left + r * depth, depth, panels, clip, scores + r * tile);
  }
}

template <class Engine>
inline void Bf16AccumulateValues(const Bf16* left, const Bf16* right_rows, Index width, Index rows,
                                 const Clip* clips, float* out) noexcept {
  for (Index r = 0; r < rows; r += block_rows) {
    const Clip clip = BlockClip(clips, r);
    if (clip.end > 0)
      AccumulateBlock<Engine>(left + r * tile, right_rows, width, clip, out + r * width);
  }
}

template <class Engine>
inline void Bf16AccumulateTransposed(const Bf16* columns, const Bf16* interleaved, Index width,
                                     float* out) noexcept {
  for (Index r = 0; r < width; r += block_rows) {
    Engine::template Multiply<Store::add>({.a = columns + r * tile,
                                           .a_stride = tile,
                                           .b = interleaved,
                                           .b_stride = 2 * tile,
                                           .half_depth = tile / 2,
                                           .c = out + r * tile,
                                           .c_stride = tile,
                                           .columns = tile});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
