#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rapt/nn/tape.h"
#include "support/truth/definition.h"

namespace rapt::test {

// What tests of operations on a tape share: definitions in f64 and their differences.

using Wide = std::vector<double>;

Wide widened(const Tensor& x);

/// The gradient of f at x, by differences of four points in double: off by about 1e-11 of the
/// values of f.
Wide differences(const std::function<double(const Wide&)>& f, Wide x);

/// "" if |got - want| <= units * u32 * size for every number, else the one furthest out. A NaN must
/// be answered by a NaN, an infinity by the same one. `size` is one number for all or one for each.
std::string beyond(const std::string& what, std::span<const float> got, const Wide& want,
                   const Wide& size, double units);

/// A parameter of normal numbers times `scale`, plus `shift`.
Parameter random_parameter(const std::string& name, const Shape& shape, std::uint64_t seed,
                           double scale = 1, double shift = 0);

/// Calls the function with a context of every instruction set, and of 1, 2, 3 and 7 threads of the
/// best.
void in_every_context(const std::function<void(const Context&)>& run);

/// "" if `answer` gives the same bits for 1, 2, 3 and 7 threads.
std::string depends_on_threads(const std::function<std::vector<Tensor>(const Context&)>& answer);

}  // namespace rapt::test
