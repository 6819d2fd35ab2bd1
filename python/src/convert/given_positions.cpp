#include "python/src/convert/given_positions.h"

#include "python/src/convert/call_options.h"

namespace rapt::python {

GivenPositions::GivenPositions(nb::handle given, Index axes) {
  Index first = 0;
  if (given.is_none()) return;
  if (nb::try_cast(given, first)) {
    positions_ = Positions(first);
    return;
  }
  numbers_ = indices_of(given, "positions");
  positions_ = axes > 1 ? Positions::grid(numbers_, axes) : Positions::list(numbers_);
}

}  // namespace rapt::python
