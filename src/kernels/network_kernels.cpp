#include "kernels/network_kernels.h"

#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/network_kernels.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/nn/activation-inl.h"
#include "kernels/nn/adam-inl.h"
#include "kernels/nn/elementwise-inl.h"
#include "kernels/nn/loss-inl.h"
#include "kernels/nn/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {

template <class Function>
inline constexpr NetworkKernels::Activate activate_kernels = {
    Activate<Function>, ActivateBack<Function>, Gate<Function>, GateBack<Function>};

// quantized_kernels.cpp
extern const QuantizedKernels quantized_kernels;
#if HWY_TARGET == HWY_AVX3
extern const QuantizedKernels quantized_vnni;
inline constexpr const QuantizedKernels* vnni = &quantized_vnni;
#else
inline constexpr const QuantizedKernels* vnni = nullptr;
#endif

// kernels.cpp puts it into the table of its target.
extern const NetworkKernels network_kernels;
const NetworkKernels network_kernels = {
    .add = AddLine,
    .sum = SumLines,
    .scale = ScaleLine,
    .add_rows = AddRows,
    .sum_squares = SumSquares,
    .layer_norm = {Normalize<Centre::mean>, NormalizeBack<Centre::mean>},
    .rms_norm = {Normalize<Centre::zero>, NormalizeBack<Centre::zero>},
    .activate = {activate_kernels<Relu>, activate_kernels<Gelu>, activate_kernels<GeluTanh>,
                 activate_kernels<Silu>},
    .normal_cdf = NormalCdfNumbers,
    .largest = Largest,
    .row_sum = LineSum,
    .exponentials = Exponentials,
    .affine = AffineLine,
    .adam = Adam,
    .quantized = &quantized_kernels,
    .quantized_vnni = vnni,
};

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
