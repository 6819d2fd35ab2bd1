// From q·k to logits: relative keys, soft-cap, biases. One sweep over the tile each, and only if
// the call has them: a tile is 16 KiB and stays in L1.
#if defined(RAPT_LOGITS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_LOGITS_INL_H
#undef RAPT_LOGITS_INL_H
#else
#define RAPT_LOGITS_INL_H
#endif

#include "kernels/common/math-inl.h"
#include "kernels/score_kernels.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// scores = cap * tanh(scores); tanh_out keeps the tangents for backward.
inline void Softcap(float* scores, Index row_strips, const Clip* clips, float cap,
                    float* tanh_out) noexcept {
  const DF d;
  const VF factor = hn::Set(d, cap);
  for (Index r = 0; r < row_strips * strip; ++r) {
    const Clip clip = ClipOf(clips, r);
    for (Index c = clip.begin; c < clip.end; c += lane_count) {
      const VF t = Tanh(d, hn::Load(d, scores + r * tile + c));
      if (tanh_out != nullptr) hn::Store(t, d, tanh_out + r * tile + c);
      hn::Store(hn::Mul(t, factor), d, scores + r * tile + c);
    }
  }
}

/// scores[r][c] += diagonal[c - r]
inline void AddDiagonal(float* scores, Index row_strips, const Clip* clips,
                        const float* diagonal) noexcept {
  const DF d;
  for (Index r = 0; r < row_strips * strip; ++r) {
    const Clip clip = ClipOf(clips, r);
    for (Index c = clip.begin; c < clip.end; c += lane_count) {
      float* at = scores + r * tile + c;
      hn::Store(hn::Add(hn::Load(d, at), hn::LoadU(d, diagonal + c - r)), d, at);
    }
  }
}

/// scores[r][c] += band[r][64 + c - r]
inline void AddBand(float* scores, Index row_strips, const Clip* clips,
                    const float* band) noexcept {
  const DF d;
  for (Index r = 0; r < row_strips * strip; ++r) {
    const float* middle = band + r * band_width + tile - r;
    const Clip clip = ClipOf(clips, r);
    for (Index c = clip.begin; c < clip.end; c += lane_count) {
      float* at = scores + r * tile + c;
      hn::Store(hn::Add(hn::Load(d, at), hn::LoadU(d, middle + c)), d, at);
    }
  }
}

/// dlogits *= 1 - tanh^2; where a key is hidden they stay 0, whatever the tangent is
inline void SoftcapBackward(float* dlogits, const float* tanh_of, Index rows) noexcept {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  for (Index i = 0; i < rows * tile; i += lane_count) {
    const VF t = hn::Load(d, tanh_of + i);
    const VF dl = hn::Load(d, dlogits + i);
    const VF product = hn::Mul(dl, hn::NegMulAdd(t, t, one));
    hn::Store(hn::IfThenElse(hn::Eq(dl, hn::Zero(d)), dl, product), d, dlogits + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
