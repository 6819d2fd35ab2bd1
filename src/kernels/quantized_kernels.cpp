#include "kernels/quantized_kernels.h"

#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantized_kernels.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/nn/quantized-inl.h"
#include "kernels/nn/quantized_vnni-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {

// network_kernels.cpp puts the first into the table of its target.
extern const QuantizedKernels quantized_kernels;
const QuantizedKernels quantized_kernels = {
    .round = RoundActivations,
    .product = {QuantizedProduct<CodeBits::eight, Shift::none>,
                QuantizedProduct<CodeBits::eight, Shift::own>,
                QuantizedProduct<CodeBits::four, Shift::none>,
                QuantizedProduct<CodeBits::four, Shift::own>},
};

#if HWY_TARGET == HWY_AVX3
extern const QuantizedKernels quantized_vnni;
const QuantizedKernels quantized_vnni = {
    .round = RoundActivations,
    .product = {QuantizedProductVnni<CodeBits::eight, Shift::none>,
                QuantizedProductVnni<CodeBits::eight, Shift::own>,
                QuantizedProductVnni<CodeBits::four, Shift::none>,
                QuantizedProductVnni<CodeBits::four, Shift::own>},
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
