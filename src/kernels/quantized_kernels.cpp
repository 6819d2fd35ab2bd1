#include "kernels/quantized_kernels.h"

#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantized_kernels.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/nn/quantized-inl.h"
#include "kernels/nn/quantized_wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {

// nn_kernels.cpp puts the first into the table of its target.
extern const QuantizedKernels quantized_kernels;
const QuantizedKernels quantized_kernels = {
    .round = RoundActivations,
    .product = {QuantizedProduct<CodeBits::eight, Shift::none>,
                QuantizedProduct<CodeBits::eight, Shift::own>,
                QuantizedProduct<CodeBits::four, Shift::none>,
                QuantizedProduct<CodeBits::four, Shift::own>},
};

#if HWY_TARGET == HWY_AVX3
extern const QuantizedKernels quantized_fours;
const QuantizedKernels quantized_fours = {
    .round = RoundActivations,
    .product = {QuantizedProductWide<CodeBits::eight, Shift::none>,
                QuantizedProductWide<CodeBits::eight, Shift::own>,
                QuantizedProductWide<CodeBits::four, Shift::none>,
                QuantizedProductWide<CodeBits::four, Shift::own>},
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
