#include "support/truth/rope_truth.h"

#include <cmath>
#include <sstream>

namespace rapt::test {

std::vector<long double> true_frequencies(double base, Index channels) {
  std::vector<long double> frequencies;
  for (Index i = 0; i < channels / 2; ++i)
    frequencies.push_back(
        std::pow(static_cast<long double>(base),
                 -2 * static_cast<long double>(i) / static_cast<long double>(channels)));
  return frequencies;
}

Doubles TrueRope::turned(const Doubles& row, const std::vector<Index>& positions) const {
  Doubles out = row;
  const std::size_t pairs = frequency.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const Index position = positions[axis.empty() ? 0 : static_cast<std::size_t>(axis[i])];
    const long double angle = static_cast<long double>(position) * frequency[i];
    const long double scale = factor * (size ? size(static_cast<Index>(i), position) : 1);
    const bool near = layout == RopeLayout::interleaved;
    const std::size_t first = near ? 2 * i : i, second = near ? 2 * i + 1 : i + pairs;
    const long double a = row[first], b = row[second];
    out[first] = static_cast<double>(scale * (a * std::cos(angle) - b * std::sin(angle)));
    out[second] = static_cast<double>(scale * (a * std::sin(angle) + b * std::cos(angle)));
  }
  return out;
}

Doubles turned(const TrueRope& rope, View x, const PositionsOf& positions) {
  Doubles all;
  for (Index item = 0; item < x.batch(); ++item)
    for (Index head = 0; head < x.heads(); ++head)
      for (Index token = 0; token < x.tokens(); ++token) {
        const float* from = x.row(item, head, token);
        const Doubles row = rope.turned(Doubles(from, from + x.dim()), positions(item, token));
        all.insert(all.end(), row.begin(), row.end());
      }
  return all;
}

/// A number is a c - b s: c and s are known to half a unit, the products and their sum to as much,
/// so two units of the larger product do for numbers of a size around 1.
std::string far_from(const Doubles& want, View got, const std::string& where, double units) {
  const Doubles numbers = doubles(got);
  std::ostringstream text;
  if (numbers.size() != want.size()) return "sizes differ " + where;
  double largest = 0;
  for (const double number : want) largest = std::fmax(largest, std::fabs(number));
  const double bound = units * u32 * std::fmax(largest, 1e-30);
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::fabs(numbers[i] - want[i]) <= bound) continue;
    text.precision(10);
    text << "[" << i << "]: got " << numbers[i] << ", expected " << want[i] << " +- " << bound
         << ", " << where;
    return text.str();
  }
  return {};
}

Tensor as_f32(AnyView view) {
  Tensor out(view.shape());
  Index at = 0;
  for (Index item = 0; item < view.batch(); ++item)
    for (Index head = 0; head < view.heads(); ++head)
      for (Index token = 0; token < view.tokens(); ++token)
        for (Index c = 0; c < view.dim(); ++c) {
          const void* row = view.row(item, head, token);
          if (view.type() == Type::f32) out.data()[at++] = static_cast<const float*>(row)[c];
          if (view.type() == Type::bf16)
            out.data()[at++] = static_cast<float>(static_cast<const Bf16*>(row)[c]);
          if (view.type() == Type::f16)
            out.data()[at++] = static_cast<float>(static_cast<const F16*>(row)[c]);
        }
  return out;
}

}  // namespace rapt::test
