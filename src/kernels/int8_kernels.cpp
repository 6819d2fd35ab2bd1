#include "kernels/decode_kernels.h"
#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int8_kernels.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/decode/int8_page-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
// kernels.cpp puts it into the table of its target.
extern const DecodeKernels::Int8Products int8_products;
const DecodeKernels::Int8Products int8_products = {.pack_queries = PackInt8Queries,
                                                   .attend = AttendInt8Page};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
