#pragma once

#include <functional>
#include <vector>

#include "lab/charts/figure.h"
#include "rapt/attention.h"

namespace rapt::lab {
using namespace detail;

/// What an experiment may use.
struct Lab {
  const Context& context;
  std::uint64_t seed = 1;
  /// Told which part of the experiment is done, from 0 to 1.
  std::function<void(double done)> progress;

  /// For something that takes the experiment from one part of its way to another.
  Lab part(double from, double to) const {
    return {context, seed, [this, from, to](double done) { progress(from + (to - from) * done); }};
  }
};

// One question each. The caller fills in a section's command.
Section why_square_root(const Lab& lab);
Section where_gradients_die(const Lab& lab);
Section long_inputs(const Lab& lab);
Section how_sparse(const Lab& lab);
Section position_schemes(const Lab& lab);

}  // namespace rapt::lab
