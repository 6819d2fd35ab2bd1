#include "positions/table_rows.h"

#include <algorithm>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/views.h"

namespace rapt::detail {

void check_table(const char* where, const char* name, const View& table) {
  check(table.shape().rank() == 2, where, ": ", name, " has shape ", table.shape(),
        ", expected [rows, dim]");
  check_memory(where, name, table);
}

void check_token_gradient(const char* where, const View& dout) {
  check(dout.shape().rank() == 3, where, ": dout has shape ", dout.shape(),
        ", expected [batch, tokens, dim]");
  check_memory(where, "dout", dout);
}

TokenPositions line_positions(const char* where, const Positions& positions, TokenGrid grid) {
  check(positions.axes() == 1, where, ": positions on ", positions.axes(),
        " axes given, expected one");
  return {where, positions, grid};
}

void look_up(const View& table, const RowOfToken& row, Index first, Tensor& out) {
  const Shape& shape = out.shape();
  for (Index item = 0; item < shape[0]; ++item) {
    for (Index token = 0; token < shape[1]; ++token) {
      const float* from = table.data() + row(item, token) * table.stride(0);
      float* to = out.data() + (item * shape[1] + token) * shape[2] + first;
      for (Index c = 0; c < table.size(1); ++c) to[c] = from[c * table.stride(1)];
    }
  }
}

Tensor add_up(const View& dout, const RowOfToken& row, Index first, const Shape& table) {
  const Index width = table[1];
  IndexedVector<double> sums(table.elements());
  for (Index item = 0; item < dout.size(0); ++item) {
    for (Index token = 0; token < dout.size(1); ++token) {
      const float* from = dout.data() + item * dout.stride(0) + token * dout.stride(1);
      double* to = sums.data() + row(item, token) * width;
      for (Index c = 0; c < width; ++c)
        to[c] += static_cast<double>(from[(first + c) * dout.stride(2)]);
    }
  }
  Tensor gradient = Tensor::uninitialized(table);
  std::transform(sums.begin(), sums.end(), gradient.data(),
                 [](double x) { return static_cast<float>(x); });
  return gradient;
}

}  // namespace rapt::detail
