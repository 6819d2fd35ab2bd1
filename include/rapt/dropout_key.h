#pragma once

#include <cstdint>

#include "rapt/attention.h"

namespace rapt {

/// Where in a training run something is dropped. Dropout is a function of this key and of the index
/// of a number, never of what was drawn before: computing a layer again with the same key drops the
/// same numbers.
struct RAPT_API DropoutKey {
  std::uint64_t seed = 0;  // of the run
  Index step = 0;
  Index layer = 0;
  Index site = 0;  // inside the layer

  /// The same with another site.
  DropoutKey at(Index other) const { return {seed, step, layer, other}; }
  /// One number for all four, as Attention::dropout takes it.
  std::uint64_t mixed() const;
  /// Dropout of attention probabilities with this key.
  Dropout attention(double rate) const { return {rate, mixed()}; }
  bool operator==(const DropoutKey&) const = default;
};

/// Sets each number to zero with probability `rate` and multiplies the others by 1 / (1 - rate), in
/// place; x is row-major, of any shape and type. Its gradient is the same call on the gradient.
/// Throws std::invalid_argument if the rate is not between 0 and 1 or x is not row-major.
RAPT_API void drop(AnyMutableView x, double rate, const DropoutKey& key,
                   const Context& context = {});

}  // namespace rapt
