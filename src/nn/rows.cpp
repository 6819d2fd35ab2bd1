#include "nn/rows.h"

namespace rapt::detail {

void add_row_sums(const float* x, Index rows, Tensor& to, const Context& context) {
  constexpr Index columns = 64;
  const Index width = to.elements();
  for_each_task(context, divide_up(width, columns), [&](Index task, Index) {
    const Index first = task * columns, count = std::min(columns, width - first);
    double sums[columns] = {};
    for (Index r = 0; r < rows; ++r) {
      const float* row = x + r * width + first;
      for (Index c = 0; c < count; ++c) sums[c] += static_cast<double>(row[c]);
    }
    float* out = to.data() + first;
    for (Index c = 0; c < count; ++c)
      out[c] = static_cast<float>(static_cast<double>(out[c]) + sums[c]);
  });
}

}  // namespace rapt::detail
