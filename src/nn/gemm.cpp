#include "nn/gemm.h"

#include "kernels/context.h"

namespace rapt {
namespace {

float element(const Matrix& m, Index r, Index c) {
  const Index at = r * m.row_step + c * m.column_step;
  float x = 0;
  const auto* bytes = static_cast<const std::byte*>(m.data);
  kernels_of(Context()).load_numbers(bytes + at * static_cast<Index>(size_of(m.type)), m.type, 1,
                                     &x);
  return x;
}

}  // namespace

void multiply(const Matrix& a, const Matrix& b, const Product& to, const Context&) {
  for (Index r = 0; r < a.rows; ++r) {
    for (Index c = 0; c < b.columns; ++c) {
      float* out = to.data + r * to.stride + c;
      double sum = to.add ? *out : to.bias == nullptr ? 0.0f : to.bias[c];
      for (Index k = 0; k < a.columns; ++k)
        sum += static_cast<double>(element(a, r, k)) * static_cast<double>(element(b, k, c));
      *out = static_cast<float>(sum);
    }
  }
}

}  // namespace rapt
