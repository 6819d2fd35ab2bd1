#include "distributed/attention/rank_gradients.h"

namespace rapt::detail {

SummedGradient::SummedGradient(const AnyView& operand, bool others_add)
    : result_(Tensor::uninitialized(operand.shape(), operand.type())) {
  if (others_add && operand.type() != Type::f32) wide_ = Tensor::uninitialized(operand.shape());
}

void SummedGradient::add(Index head, Index row, const float* numbers) {
  const AnyMutableView to = own();
  auto* sums = static_cast<float*>(to.row(head / to.heads(), head % to.heads(), row));
  for (Index i = 0; i < to.dim(); ++i) sums[i] += numbers[i];
}

Tensor SummedGradient::finish() {
  return wide_.empty() ? std::move(result_) : wide_.converted(result_.type());
}

}  // namespace rapt::detail
