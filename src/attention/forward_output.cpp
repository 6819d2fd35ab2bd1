#include "attention/forward_output.h"

#include "attention/finished_row.h"
#include "base/sizes.h"

namespace rapt::detail {

Attended make_results(const Shape& rows, bool stats) {
  const auto count = to_size(rows.elements());
  Attended attended;
  attended.lse = Tensor(rows);
  attended.rows.max.resize(count);
  attended.rows.sum.resize(count);
  if (stats) attended.stats = make_stats(rows);
  return attended;
}

ForwardOutput output_of(Attended& attended, const AnyMutableView& to) {
  return {to, &attended.lse, &attended.rows, attended.stats ? &*attended.stats : nullptr};
}

}  // namespace rapt::detail
