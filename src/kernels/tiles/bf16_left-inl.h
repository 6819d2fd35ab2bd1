// Left operands of bf16 products, rows as they are or transposed; and transposed results.
#if defined(RAPT_BF16_LEFT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BF16_LEFT_INL_H
#undef RAPT_BF16_LEFT_INL_H
#else
#define RAPT_BF16_LEFT_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "base/sizes.h"
#include "kernels/bf16_kernels.h"
#include "kernels/common/pack-inl.h"
#include "kernels/tiles/bf16_matmul-inl.h"
#include "kernels/tiles/bf16_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline void PackBf16Strips(const InputRows& rows, Index dim, Index depth, Bf16* out) noexcept {
  const auto* data = static_cast<const Bf16*>(rows.data);
  for (Index r = 0; r < tile; ++r) {
    Bf16* to = out + r * depth;
    const Index present = r < rows.count ? dim : 0;
    if (present > 0) std::memcpy(to, data + r * rows.stride, to_size(present) * sizeof(Bf16));
    std::fill(to + present, to + depth, Bf16());
  }
}

#if HWY_TARGET != HWY_SCALAR

/// Transposes eight rows of eight 16-bit numbers: neighbours are joined to words of 32, then 64,
/// then 128 bits.
HWY_INLINE void TransposeEight(const std::uint16_t* from, Index stride, std::uint16_t* to,
                               Index to_stride) {
  const hn::CappedTag<std::uint16_t, 8> d16;
  const hn::CappedTag<std::uint32_t, 4> d32;
  const hn::CappedTag<std::uint64_t, 2> d64;
  hn::Vec<decltype(d32)> a[8];
  for (int i = 0; i < 4; ++i) {
    const auto even = hn::LoadU(d16, from + 2 * i * stride);
    const auto odd = hn::LoadU(d16, from + (2 * i + 1) * stride);
    a[i] = hn::BitCast(d32, hn::InterleaveLower(d16, even, odd));
    a[i + 4] = hn::BitCast(d32, hn::InterleaveUpper(d16, even, odd));
  }
  hn::Vec<decltype(d64)> b[8];
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 2; ++i) {
      const auto even = a[4 * half + 2 * i];
      const auto odd = a[4 * half + 2 * i + 1];
      b[4 * half + i] = hn::BitCast(d64, hn::InterleaveLower(d32, even, odd));
      b[4 * half + 2 + i] = hn::BitCast(d64, hn::InterleaveUpper(d32, even, odd));
    }
  }
  for (int i = 0; i < 4; ++i) {
    const auto low = hn::InterleaveLower(d64, b[2 * i], b[2 * i + 1]);
    const auto high = hn::InterleaveUpper(d64, b[2 * i], b[2 * i + 1]);
    hn::StoreU(hn::BitCast(d16, low), d16, to + 2 * i * to_stride);
    hn::StoreU(hn::BitCast(d16, high), d16, to + (2 * i + 1) * to_stride);
  }
}

#endif

/// Whether none of the bf16 numbers is infinite or NaN.
HWY_INLINE bool AllFinite(const Bf16* numbers, Index count) {
  Bf16FiniteCheck<DU> check;
  for (Index i = 0; i < count; i += 2 * lane_count) check.See(LoadWords(DU(), numbers + i));
  return check.Finite();
}

inline bool PackBf16Columns(const InputRows& rows, Index dim, Index width, Bf16* out) noexcept {
  const auto* data = static_cast<const std::uint16_t*>(rows.data);
  auto* to = reinterpret_cast<std::uint16_t*>(out);
  Index whole_rows = 0, whole_columns = 0;
#if HWY_TARGET != HWY_SCALAR
  whole_rows = rows.count / 8 * 8;
  whole_columns = dim / 8 * 8;
  for (Index c = 0; c < whole_columns; c += 8) {
    for (Index r = 0; r < whole_rows; r += 8)
      TransposeEight(data + r * rows.stride + c, rows.stride, to + c * tile + r, tile);
  }
#endif
  for (Index c = 0; c < width; ++c) {
    const Index done = c < whole_columns ? whole_rows : 0;
    for (Index r = done; r < tile; ++r)
      to[c * tile + r] = c < dim && r < rows.count ? data[r * rows.stride + c] : std::uint16_t{0};
  }
  return AllFinite(out, width * tile);
}

inline void TransposeColumns(const float* columns, Index width, float* rows) noexcept {
  FiniteCheck ignored;
  for (Index c = 0; c < width; c += 4) {
    const float* four[4];
    for (Index i = 0; i < 4; ++i) four[i] = columns + (c + i) * tile;
    const NoFactor ones[4];
    TransposeFour(four, ones, 0, tile, rows + c, width, ignored);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
