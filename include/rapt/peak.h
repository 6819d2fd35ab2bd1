#pragma once

#include <optional>
#include <string>

#include "rapt/context.h"

namespace rapt {

/// What this machine can do, measured with the threads and instruction set of a context, all
/// threads together.
struct Peak {
  double fma_gflops = 0;   // f32 multiply-adds from registers, two flops each
  double bf16_gflops = 0;  // bf16 products summed in f32; 0 where operands are widened to f32
  double exp_gops = 0;     // our exp2 over numbers in L1
  double read_gbytes = 0;  // streaming read of memory far larger than the caches
};

/// Best of several short runs, about `seconds` in all.
RAPT_API Peak measure_peak(double seconds = 0.6, const Context& context = {});

/// Only reading, over `bytes` of memory again and again, from a cache if they fit it.
RAPT_API double measure_read_gbytes(Index bytes, double seconds = 0.05,
                                    const Context& context = {});

/// Only copying `bytes` again and again; bytes read and bytes written both count.
RAPT_API double measure_copy_gbytes(Index bytes, double seconds = 0.05,
                                    const Context& context = {});

/// Only the FMA peak: cheap enough to interleave with the code it is compared to.
RAPT_API double measure_fma_gflops(double seconds = 0.05, const Context& context = {});
/// Only the peak of bf16 products (AMX); 0 where there are none.
RAPT_API double measure_bf16_gflops(double seconds = 0.05, const Context& context = {});
/// Why this process cannot use AMX; absent if it can.
RAPT_API std::optional<std::string> why_no_amx();

}  // namespace rapt
