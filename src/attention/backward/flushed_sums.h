#pragma once

#include <algorithm>

#include "base/buffer.h"
#include "kernels/vector_kernels.h"

namespace rapt::detail {

/// Sums of products: in f32 since the last flush, in f64 up to it. Most key tiles of a narrow
/// pattern never flush, and their f64 half is never touched.
class FlushedSums {
 public:
  FlushedSums() = default;
  explicit FlushedSums(Index count) : recent_(count), wide_(count) {}

  void clear() {
    std::fill(recent_.begin(), recent_.end(), 0.0f);
    wide_used_ = false;
  }
  void flush(const VectorKernels& vectors) {
    (wide_used_ ? vectors.widen : vectors.widen_first)(recent_.data(), wide_.data(), wide_.size());
    wide_used_ = true;
  }
  /// What products add to.
  float* recent() { return recent_.data(); }
  /// Numbers first .. first + count - 1 of the sums, times a factor, rounded once.
  void narrow(const VectorKernels& vectors, Index first, Index count, double factor,
              float* out) const {
    vectors.narrow(wide_used_ ? wide_.data() + first : nullptr, recent_.data() + first, factor,
                   count, out);
  }
  Index size() const { return recent_.size(); }

 private:
  Buffer<float> recent_;
  Buffer<double> wide_;
  bool wide_used_ = false;
};

}  // namespace rapt::detail
