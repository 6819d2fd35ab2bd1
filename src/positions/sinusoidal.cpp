#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/flush_denormals.h"
#include "base/indexed_vector.h"
#include "positions/token_positions.h"
#include "rapt/positions.h"

namespace rapt {
using namespace detail;
namespace {

void check_sinusoidal(const Sinusoidal& how) {
  check(how.dim >= 1, "sinusoidal: dim is ", how.dim, ", expected 1 or more");
  check(std::isfinite(how.base) && how.base > 1, "sinusoidal: base is ", how.base,
        ", expected a finite number above 1");
}

/// Sines of the row; an odd dim has one cosine less, or none of the two.
Index sines(const Sinusoidal& how) {
  return how.frequencies == Sinusoidal::Frequencies::exclusive ? (how.dim + 1) / 2 : how.dim / 2;
}

double frequency(const Sinusoidal& how, Index i) {
  const bool exclusive = how.frequencies == Sinusoidal::Frequencies::exclusive;
  const double exponent =
      exclusive ? 2 * static_cast<double>(i) / static_cast<double>(how.dim)
                : static_cast<double>(i) / static_cast<double>(std::max<Index>(how.dim / 2 - 1, 1));
  return std::pow(how.base, -exponent);
}

}  // namespace

Tensor sinusoidal(const Sinusoidal& how, std::span<const Index> positions) {
  const FlushDenormals guard;
  check_sinusoidal(how);
  const auto count = static_cast<Index>(positions.size());
  const TokenPositions at("sinusoidal", Positions::list(positions), {1, count});
  Tensor table({count, how.dim});
  const bool interleaved = how.layout == Sinusoidal::Layout::interleaved;
  const Index step = interleaved ? 2 : 1;
  const Index cosines = interleaved ? 1 : sines(how);
  for (Index i = 0; i < sines(how); ++i) {
    const double radians = frequency(how, i);
    for (Index t = 0; t < count; ++t) {
      const double angle = static_cast<double>(at.at(0, t)) * radians;
      float* row = table.data() + t * how.dim;
      row[i * step] = static_cast<float>(std::sin(angle));
      if (i < how.dim / 2) row[cosines + i * step] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

Tensor sinusoidal(const Sinusoidal& how, Index first, Index tokens) {
  check(tokens >= 0, "sinusoidal: ", tokens, " tokens given, expected 0 or more");
  const TokenPositions at("sinusoidal", first, {1, tokens});
  IndexedVector<Index> positions(tokens);
  std::iota(positions.begin(), positions.end(), at.lowest());
  return sinusoidal(how, positions);
}

}  // namespace rapt
