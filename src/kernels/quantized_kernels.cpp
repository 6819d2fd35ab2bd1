#include "kernels/quantized_kernels.h"

#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantized_kernels.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/quantized-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {

template <Bytes bytes>
inline constexpr QuantizedKernels kernels_with = {
    .round = RoundActivations,
    .product = {QuantizedProduct<CodeBits::eight, Shift::none, bytes>,
                QuantizedProduct<CodeBits::eight, Shift::own, bytes>,
                QuantizedProduct<CodeBits::four, Shift::none, bytes>,
                QuantizedProduct<CodeBits::four, Shift::own, bytes>},
};

// network_kernels.cpp puts the first into the table of its target.
extern const QuantizedKernels quantized_kernels;
const QuantizedKernels quantized_kernels = kernels_with<Bytes::pairs>;

#if HWY_TARGET == HWY_AVX3
extern const QuantizedKernels quantized_fours;
const QuantizedKernels quantized_fours = kernels_with<Bytes::fours>;
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
