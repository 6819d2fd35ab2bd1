// The layout of int8 pages, the same on every instruction set: four numbers in a 32-bit word, so
// that one load feeds four vectors of floats.
//
//   keys    [ceil(dim / 4)][64] words: (c / 4, slot) holds columns c .. c + 3 of a slot
//   values  [16][width] words: (i, c) holds column c of slots i, 16 + i, 32 + i and 48 + i
#if defined(RAPT_INT8_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_INT8_PACK_INL_H
#undef RAPT_INT8_PACK_INL_H
#else
#define RAPT_INT8_PACK_INL_H
#endif

#include <cstring>

#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DInts = hn::RebindToSigned<DF>;
using VInts = hn::Vec<DInts>;

HWY_INLINE VInts LoadInt8Words(const std::int8_t* from) {
  const DInts d;
#if HWY_TARGET == HWY_SCALAR
  std::int32_t word;
  std::memcpy(&word, from, sizeof word);
  return hn::Set(d, word);
#else
  const hn::Repartition<std::int8_t, DInts> d8;
  return hn::BitCast(d, hn::LoadU(d8, from));
#endif
}

/// The factor in what Int8Numbers returns.
inline constexpr float int8_factor = 0x1p24f;

/// Number `which` of each word, times int8_factor: moving a byte to the top of its lane is one
/// operation, sign-extending it at the bottom would be two or three.
HWY_INLINE VF Int8Numbers(VInts words, int which) {
  const DInts d;
  VInts top;
  if (which == 0) {
    top = hn::ShiftLeft<24>(words);
  } else if (which == 3) {
    top = hn::And(words, hn::Set(d, std::int32_t{-1} << 24));
  } else {
    // In every lane byte 3 comes from byte `which`, the others become 0.
    alignas(16) static constexpr std::uint8_t from[2][16] = {
        {128, 128, 128, 1, 128, 128, 128, 5, 128, 128, 128, 9, 128, 128, 128, 13},
        {128, 128, 128, 2, 128, 128, 128, 6, 128, 128, 128, 10, 128, 128, 128, 14}};
#if HWY_TARGET == HWY_SCALAR
    static_cast<void>(from);
    top = hn::ShiftLeft<24>(hn::Set(d, hn::GetLane(words) >> (8 * which)));
#else
    const hn::Repartition<std::uint8_t, DInts> d8;
    const auto bytes =
        hn::TableLookupBytesOr0(hn::BitCast(d8, words), hn::LoadDup128(d8, from[which - 1]));
    top = hn::BitCast(d, bytes);
#endif
  }
  return hn::ConvertTo(DF(), top);
}

inline void UnpackInt8Panels(const std::int8_t* stored, const float* scales, Index dim,
                             float* panels) noexcept {
  const DF d;
  for (Index first = 0; first < tile; first += panel_columns) {
    const Index width = std::min(panel_columns, tile - first);
    for (Index i = 0; i < width; i += lane_count) {
      const VF scale = hn::LoadU(d, scales + first + i);
      for (Index c = 0; c < dim; ++c) {
        const VInts words = LoadInt8Words(stored + (c / 4 * tile + first + i) * 4);
        const VF x =
            hn::Mul(Int8Numbers(words, static_cast<int>(c % 4)), hn::Set(d, 1 / int8_factor));
        hn::StoreU(hn::Mul(x, scale), d, panels + first * dim + c * width + i);
      }
    }
  }
}

inline void UnpackInt8Rows(const std::int8_t* stored, const float* scales, Index stored_width,
                           Index width, float* rows) noexcept {
  const DF d;
  for (Index first = 0; first < width; first += panel_columns) {
    const Index columns = std::min(panel_columns, width - first);
    for (Index slot = 0; slot < tile; ++slot) {
      const VF scale = hn::Set(d, scales[slot]);
      for (Index c = 0; c < columns; c += lane_count) {
        const VInts words =
            LoadInt8Words(stored + (slot % word_gap * stored_width + first + c) * 4);
        const VF x = hn::Mul(Int8Numbers(words, static_cast<int>(slot / word_gap)),
                             hn::Set(d, 1 / int8_factor));
        hn::StoreU(hn::Mul(x, scale), d, rows + first * tile + slot * columns + c);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
