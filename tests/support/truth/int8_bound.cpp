#include "support/truth/int8_bound.h"

#include <algorithm>
#include <cmath>

#include "kernels/context.h"

namespace rapt::test {
using namespace detail;
namespace {

/// Calls with_row(first number) for each row of `width`.
template <class WithRow>
void for_each_row(Doubles& numbers, Index width, const WithRow& with_row) {
  for (auto row = numbers.begin(); row != numbers.end(); row += width) with_row(row);
}

double largest_of(Doubles::const_iterator row, Index width) {
  double largest = 0;
  for (Index c = 0; c < width; ++c) largest = std::fmax(largest, std::fabs(row[c]));
  return largest;
}

/// Of each query row: the largest of its numbers times the largest sum of a key's sizes in its
/// sight, as a logit.
Doubles logit_sizes(Problem p) {
  p.how.softcap.reset();
  p.how.bias = {};
  p.sinks.clear();
  for_each_row(p.q, p.dim, [&](auto row) { std::fill_n(row, p.dim, largest_of(row, p.dim)); });
  for (double& x : p.k) x = std::fabs(x);
  Doubles sizes = define(p).row_lse.unit;
  for (double& x : sizes) x = x / u32 - 4;
  return sizes;
}

/// Of each query row: the mean step of the values that it sees.
Doubles mean_steps(Problem p) {
  Doubles steps;
  for_each_row(p.v, p.value_dim,
               [&](auto row) { steps.push_back(largest_of(row, p.value_dim) / 127); });
  p.v = steps;
  p.value_dim = 1;
  p.relative_values.clear();
  return define(p).out.value;
}

}  // namespace

bool multiplies_int8(const Context& context) { return kernels_of(context).decode.multiplies_int8; }

void allow_int8(const Problem& problem, Defined& defined) {
  const Doubles sizes = logit_sizes(problem), steps = mean_steps(problem);
  defined.out.slack.resize(defined.out.value.size());
  defined.lse.slack.resize(sizes.size());
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    const double logit = 1.01 * 0x1p-23 * sizes[r];
    defined.lse.slack[r] = logit;
    for (Index c = 0; c < problem.value_dim; ++c) {
      const std::size_t at =
          r * static_cast<std::size_t>(problem.value_dim) + static_cast<std::size_t>(c);
      defined.out.slack[at] = std::expm1(2 * logit) * defined.out.size[at] + 0x1p-11 * steps[r];
    }
  }
  defined.row_lse.slack = defined.lse.slack;
}

}  // namespace rapt::test
