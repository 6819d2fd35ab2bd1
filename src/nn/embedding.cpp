#include <cstddef>

#include "base/indexed_vector.h"
#include "kernels/context.h"
#include "nn/matmul/packed_matrix.h"
#include "nn/matmul/weight.h"
#include "nn/row_shape.h"
#include "nn/rows.h"
#include "rapt/nn/functional.h"

namespace rapt {
using namespace detail;
namespace {

using Ids = IndexedVector<std::int32_t>;

void check_ids(const Parameter& table, const Ids& ids) {
  check(table.shape().rank() == 2, "embed: ", table.name, " has shape ", table.shape(),
        ", expected [vocab_size, width]");
  const Index vocab_size = table.shape()[0];
  for (std::size_t i = 0; i < ids.size(); ++i)
    check(0 <= ids[i] && ids[i] < vocab_size, "embed: id ", i, " is ", ids[i], ", but ", table.name,
          " has ", vocab_size, " rows");
}

/// A table row may be used many times: the task that owns a column adds all its numbers, in order.
void add_rows_back(const Tensor& dy, const Ids& ids, Tensor& dtable, const Context& context) {
  const Index width = dtable.shape()[1];
  const NetworkKernels& kernels = network_kernels_of(context);
  for_each_column_block(context, width, [&](Index first, Index count) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      kernels.add(dtable.data() + ids[i] * width + first,
                  dy.data() + static_cast<Index>(i) * width + first, count);
  });
}

void copy_row(const Parameter& table, Index row, float* to, const Context& context) {
  if (!table.quantized.empty()) return impl_of(table.quantized).expand_row(row, to);
  if (table.packed != nullptr) return table.packed->expand_row(row, to);
  const Tensor& value = table.value;
  const Index width = value.shape()[1];
  const auto* from = static_cast<const std::byte*>(value.memory()) +
                     row * width * static_cast<Index>(size_of(value.type()));
  kernels_of(context).vectors.load(from, value.type(), width, to);
}

}  // namespace

Variable embed(Tape& tape, Parameter& table, std::span<const std::int32_t> given) {
  Ids ids(given.begin(), given.end());
  check_ids(table, ids);
  if (tape.records()) check_trainable("embed", table);
  const Index width = table.shape()[1];
  Tensor y = Tensor::uninitialized({static_cast<Index>(ids.size()), width});
  for_each_row_block(tape.context(), y.shape()[0], width, [&](Index first, Index count) {
    for (Index row = first; row < first + count && width > 0; ++row)
      copy_row(table, ids[row], y.data() + row * width, tape.context());
  });
  return tape.record(std::move(y),
                     [&table, ids = std::move(ids), context = tape.context()](const Tensor& dy) {
                       add_rows_back(dy, ids, table.gradient_or_zeros(), context);
                     });
}

}  // namespace rapt
