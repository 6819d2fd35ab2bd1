#pragma once

#include <optional>
#include <vector>

#include "python/src/convert/array.h"
#include "rapt/positions.h"

namespace rapt::python {

/// Positions as Python gives them: a number (of the first token), or an array of integers that is
/// [tokens], [batch, tokens] or, with several axes, [axes, batch, tokens].
class GivenPositions {
 public:
  GivenPositions(nb::handle given, Index axes);
  GivenPositions(const GivenPositions&) = delete;

  const Positions& get() const { return positions_; }

 private:
  std::vector<Index> numbers_;
  Positions positions_;
};

}  // namespace rapt::python
