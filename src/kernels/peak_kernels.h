#pragma once

#include "rapt/tensor.h"

namespace rapt::detail {

/// Loops that measure what this instruction set can do at best.
struct PeakKernels {
  double (*fma_loop)(Index iterations) noexcept;  // flops done
  float (*read_loop)(const float* x, Index count) noexcept;
};

}  // namespace rapt::detail
