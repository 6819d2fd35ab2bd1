// Products of matrices of any size in bf16: blocks of the result from packed strips and panels, and
// the packing.
//
// Traffic per two depths with m rows and n vectors: m broadcasts and n vector loads for m n steps
// of two products each. A panel (24 KiB) stays in L1 while all strips of a block pass, the strips
// stay in the second. A block of the depth is one chain of f32 sums: what 256 roundings to f32 lose
// is 1/256 of what one rounding to bf16 does.
#if defined(RAPT_BF16_GEMM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BF16_GEMM_INL_H
#undef RAPT_BF16_GEMM_INL_H
#else
#define RAPT_BF16_GEMM_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "kernels/common/bf16_rounding-inl.h"
#include "kernels/nn/gemm-inl.h"
#include "kernels/tiles/bf16_matmul-inl.h"
#include "kernels/tiles/bf16_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Depth of a block.
inline constexpr Index bf16_block_depth = 256;
/// Operands are packed in squares of words, each two numbers of a line: 16 lines, 32 depths.
inline constexpr Index bf16_square = 16;

template <class Engine>
void Bf16MatrixProduct(const Bf16* strips, const Bf16* panels, Index depth,
                       const MatrixResult& to) noexcept {
  HWY_ALIGN float sums[block_rows * Engine::panel];
  for (Index column = 0; column < to.columns; column += Engine::panel) {
    const Index columns = std::min(Engine::panel, to.columns - column);
    const Index width = (columns + bf16_square - 1) / bf16_square * bf16_square;
    for (Index row = 0; row < to.rows; row += block_rows) {
      const Index rows = std::min(block_rows, to.rows - row);
      PrefetchTile(to, row, rows, column, columns);
      Engine::template Multiply<Store::set>({.a = strips + row * depth,
                                             .a_stride = depth,
                                             .b = panels + column * depth,
                                             .b_stride = 2 * width,
                                             .half_depth = depth / 2,
                                             .c = sums,
                                             .c_stride = Engine::panel,
                                             .columns = width,
                                             .rows = rows});
      StoreTile(sums, Engine::panel, to, row, rows, column, columns);
    }
  }
}

/// A square of words.
struct alignas(64) WordSquare {
  Bf16 numbers[bf16_square * 2 * bf16_square];
};

/// to[c][r] = from[r][c], words `stride` numbers apart from row to row.
HWY_INLINE void TransposeSquare(const Bf16* from, Index from_stride, Bf16* to, Index to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (Index r = 0; r < bf16_square; ++r)
    for (Index c = 0; c < bf16_square; ++c)
      std::memcpy(static_cast<void*>(to + c * to_stride + 2 * r), from + r * from_stride + 2 * c,
                  sizeof(std::uint32_t));
#else
  const D4Words d;
  const hn::Repartition<std::uint64_t, D4Words> d2;
  for (Index r = 0; r < bf16_square; r += 4) {
    for (Index c = 0; c < bf16_square; c += 4) {
      hn::Vec<D4Words> w[4];
      for (Index i = 0; i < 4; ++i) w[i] = LoadWords(d, from + (r + i) * from_stride + 2 * c);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, w[0], w[1]));
      const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, w[2], w[3]));
      const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, w[0], w[1]));
      const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, w[2], w[3]));
      Bf16* out = to + c * to_stride + 2 * r;
      StoreWords(hn::BitCast(d, hn::InterleaveLower(d2, low01, low23)), d, out);
      StoreWords(hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23)), d, out + to_stride);
      StoreWords(hn::BitCast(d, hn::InterleaveLower(d2, high01, high23)), d, out + 2 * to_stride);
      StoreWords(hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23)), d, out + 3 * to_stride);
    }
  }
#endif
}

/// 32 numbers of a line.
template <class Engine, class T>
HWY_INLINE void RoundLine(const T* from, Bf16* to) {
  if constexpr (std::is_same_v<T, Bf16>) {
    std::memcpy(static_cast<void*>(to), from, 2 * bf16_square * sizeof(Bf16));
    return;
  }
  const DF d;
#if HWY_TARGET == HWY_AVX3
  if constexpr (!std::is_same_v<Engine, PortableBf16>)
    return StoreHalves(RoundBoth(LoadFloats(d, from), LoadFloats(d, from + lane_count)), to);
#endif
  for (Index k = 0; k < 2 * bf16_square; k += lane_count)
    StoreFloats(LoadFloats(d, from + k), d, to + k);
}

/// 16 words of the same two depths of 16 lines.
template <class Engine, class T>
HWY_INLINE void RoundWords(const T* first, const T* second, Bf16* to) {
  const DF d;
#if HWY_TARGET == HWY_AVX3
  if constexpr (!std::is_same_v<Engine, PortableBf16> && !std::is_same_v<T, Bf16>)
    return StoreHalves(RoundInterleaved(LoadFloats(d, first), LoadFloats(d, second)), to);
#endif
  for (Index i = 0; i < bf16_square; i += lane_count)
    StoreWords(
        hn::Or(hn::ShiftRight<16>(LoadUpperHalves(d, first + i)), LoadUpperHalves(d, second + i)),
        DU(), to + 2 * i);
}

/// Contiguous lines as rows of words, zeros beyond the end.
template <class Engine, class T>
HWY_INLINE void LoadLineSquare(const T* from, Index step, Index count, Index depth, Bf16* to,
                               Index stride) {
  for (Index i = 0; i < bf16_square; ++i, from += step, to += stride) {
    if (i < count && depth >= 2 * bf16_square) {
      RoundLine<Engine>(from, to);
      continue;
    }
    if (i >= count) {  // most of a strip where a single token is generated
      std::memset(static_cast<void*>(to), 0, 2 * bf16_square * sizeof(Bf16));
      continue;
    }
    for (Index k = 0; k < 2 * bf16_square; ++k)
      to[k].bits = k < depth ? static_cast<std::uint16_t>(Bf16Bits(from[k])) : std::uint16_t{0};
  }
}

/// The same for lines that are adjacent columns of words.
template <class Engine, class T>
HWY_INLINE void LoadColumnSquare(const T* from, Index step, Index count, Index depth, Bf16* to,
                                 Index stride) {
  for (Index k = 0; k < 2 * bf16_square; k += 2, from += 2 * step, to += stride) {
    if (count >= bf16_square && k + 1 < depth) {
      RoundWords<Engine>(from, from + step, to);
      continue;
    }
    for (Index i = 0; i < bf16_square; ++i) {
      const std::uint32_t low = i < count && k < depth ? Bf16Bits(from[i]) : 0;
      const std::uint32_t high = i < count && k + 1 < depth ? Bf16Bits(from[step + i]) : 0;
      StoreWord(low | high << 16, to + 2 * i);
    }
  }
}

/// Calls with_square(line, depth) for all squares that lines touch, in the order of memory.
template <class WithSquare>
HWY_INLINE void ForEachSquare(const MatrixLines& lines, const WithSquare& with_square) {
  if (lines.depth_step == 1) {
    for (Index line = 0; line < lines.count; line += bf16_square)
      for (Index k = 0; k < lines.depth; k += 2 * bf16_square) with_square(line, k);
    return;
  }
  for (Index k = 0; k < lines.depth; k += 2 * bf16_square)
    for (Index line = 0; line < lines.count; line += bf16_square) with_square(line, k);
}

HWY_INLINE Index PaddedDepth(const MatrixLines& lines) {
  return (lines.depth + 2 * bf16_square - 1) / (2 * bf16_square) * 2 * bf16_square;
}

template <class Engine>
void PackBf16MatrixStrips(const MatrixLines& lines, Bf16* out) noexcept {
  const Index depth = PaddedDepth(lines);
  Dispatch(lines.data, lines.type, [&](const auto* from) {
    ForEachSquare(lines, [&](Index line, Index k) {
      const auto* at = from + line * lines.step + k * lines.depth_step;
      Bf16* to = out + line * depth + k;
      if (lines.depth_step == 1)
        return LoadLineSquare<Engine>(at, lines.step, lines.count - line, lines.depth - k, to,
                                      depth);
      WordSquare transposed;
      LoadColumnSquare<Engine>(at, lines.depth_step, lines.count - line, lines.depth - k,
                               transposed.numbers, 2 * bf16_square);
      TransposeSquare(transposed.numbers, 2 * bf16_square, to, depth);
    });
  });
}

template <class Engine>
void PackBf16MatrixPanels(const MatrixLines& lines, Bf16* out) noexcept {
  const Index depth = PaddedDepth(lines);
  Dispatch(lines.data, lines.type, [&](const auto* from) {
    ForEachSquare(lines, [&](Index line, Index k) {
      const auto* at = from + line * lines.step + k * lines.depth_step;
      const Index first = line / Engine::panel * Engine::panel;
      const Index width = std::min(
          Engine::panel, (lines.count - first + bf16_square - 1) / bf16_square * bf16_square);
      Bf16* to = out + first * depth + k * width + 2 * (line - first);
      if (lines.depth_step != 1)
        return LoadColumnSquare<Engine>(at, lines.depth_step, lines.count - line, lines.depth - k,
                                        to, 2 * width);
      WordSquare rows;
      LoadLineSquare<Engine>(at, lines.step, lines.count - line, lines.depth - k, rows.numbers,
                             2 * bf16_square);
      TransposeSquare(rows.numbers, 2 * bf16_square, to, 2 * width);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
