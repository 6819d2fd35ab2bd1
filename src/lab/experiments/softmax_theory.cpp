#include "lab/experiments/softmax_theory.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace rapt::lab {
using namespace detail;
namespace {

/// Means over a logit s of powers of t e^s times exp(-t e^s): all that sums over keys need.
struct LogitMeans {
  double power[5] = {};  // k = 0: the Laplace transform of e^s at t
  double weighted = 0;   // s t e^s exp(-t e^s)
};

/// Points of a standard normal number and their weights.
struct NormalGrid {
  explicit NormalGrid(double step) {
    for (double x = -9; x <= 9; x += step) {
      points.push_back(x);
      weights.push_back(step * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi));
    }
  }
  std::vector<double> points, weights;
};

LogitMeans means_at(double log_t, double sigma, const NormalGrid& grid) {
  LogitMeans means;
  for (std::size_t i = 0; i < grid.points.size(); ++i) {
    const double s = sigma * grid.points[i], exponent = log_t + s;
    if (exponent > 40) continue;  // exp(-e^40) is 0
    const double x = std::exp(exponent), decayed = grid.weights[i] * std::exp(-x);
    double term = decayed;
    for (double& sum : means.power) {
      sum += term;
      term *= x;
    }
    means.weighted += s * x * decayed;
  }
  return means;
}

double below(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
double above(double x) { return std::erfc(x / std::numbers::sqrt2) / 2; }
double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

/// The sum over keys of exp(logit - largest logit), by the largest one's place u.
double inverse_largest_of(double n, double sigma) {
  if (n < 2) return 1;
  double sum = 0;
  constexpr double step = 0.01;
  for (double u = -9; u <= 9; u += step) {
    const double others = below(u - sigma);
    if (others == 0) continue;
    sum +=
        step *
        std::exp((n - 2) * std::log(below(u)) + sigma * sigma / 2 - sigma * u + std::log(others)) *
        density(u);
  }
  return 1 + n * (n - 1) * sum;
}

/// Calls visit(length, weight) so that the weighted sum is a mean over the lengths of a standard
/// normal vector.
template <class Visit>
void for_lengths(Index dim, const Visit& visit) {
  const double d = static_cast<double>(dim);
  if (dim >= 64) {  // nearly normal, and narrow: three points are as good as many
    const double middle = std::sqrt(2.0) * std::exp(std::lgamma((d + 1) / 2) - std::lgamma(d / 2));
    const double deviation = std::sqrt(d - middle * middle);
    visit(middle, 2.0 / 3);
    visit(middle - std::sqrt(3.0) * deviation, 1.0 / 6);
    visit(middle + std::sqrt(3.0) * deviation, 1.0 / 6);
    return;
  }
  // Sums over evenly spaced points are exact enough for a density that is smooth and ends within.
  const double middle = std::sqrt(std::max(0.5, d - 0.5));
  const auto weight = [&](double length) {
    return std::exp((d - 1) * std::log(length / middle) - (length * length - middle * middle) / 2);
  };
  double all = 0;
  for (int i = -12; i <= 12; ++i)
    if (middle + 0.25 * i > 0) all += weight(middle + 0.25 * i);
  for (int i = -12; i <= 12; ++i)
    if (middle + 0.25 * i > 0) visit(middle + 0.25 * i, weight(middle + 0.25 * i) / all);
}

}  // namespace

// 1 / Z^k is an integral over t of t^(k-1) exp(-t Z), in which keys are independent: each mean of a
// sum over keys is one integral over ln t.
SoftmaxTheory softmax_theory(Index keys, double sigma) {
  const double n = static_cast<double>(keys), step = 0.25;
  const NormalGrid grid(std::min(0.1, 0.5 / std::max(sigma, 0.1)));
  SoftmaxTheory theory;
  for (double log_t = -9 * sigma - std::log(n) - 40; log_t < 9 * sigma + 10; log_t += step) {
    const LogitMeans means = means_at(log_t, sigma, grid);
    const double others = std::pow(means.power[0], n - 1);  // of the other keys
    const double two_apart = n < 2 ? 0 : std::pow(means.power[0], n - 2);
    theory.log_sum += step * (std::exp(-std::exp(log_t)) - others * means.power[0]);
    theory.entropy -= step * n * means.weighted * others;  // minus the mean of sum p s
    const double square = n * means.power[2] * others, cube = n * means.power[3] * others / 2;
    const double fourth = n * means.power[4] * others / 6 +
                          n * (n - 1) * means.power[2] * means.power[2] * two_apart / 6;
    theory.collision += step * square;
    theory.jacobian_square += step * (square - 2 * cube + fourth);
  }
  theory.entropy += theory.log_sum;
  theory.inverse_largest = inverse_largest_of(n, sigma);
  return theory;
}

SoftmaxTheory attention_theory(Index keys, Index dim, double scale) {
  SoftmaxTheory sum;
  for_lengths(dim, [&](double length, double weight) {
    const SoftmaxTheory at = softmax_theory(keys, scale * length);
    sum.log_sum += weight * at.log_sum;
    sum.entropy += weight * at.entropy;
    sum.collision += weight * at.collision;
    sum.jacobian_square += weight * at.jacobian_square;
    sum.inverse_largest += weight * at.inverse_largest;
  });
  return sum;
}

double query_gradient_theory(Index keys, Index dim, Index value_dim, double scale) {
  const double d = static_cast<double>(dim), variance = scale * scale * d;
  const double along = variance < 4 ? variance : 0;
  const double square = attention_theory(keys, dim, scale).jacobian_square;
  return scale * std::sqrt(static_cast<double>(value_dim) * (d + along) * square);
}

double key_gradient_theory(Index keys, Index queries, Index dim, Index value_dim, double scale) {
  double square = 0;
  for_lengths(dim, [&](double length, double weight) {
    square += weight * length * length * softmax_theory(keys, scale * length).jacobian_square;
  });
  return scale *
         std::sqrt(static_cast<double>(queries * value_dim) * square / static_cast<double>(keys));
}

double uniform_jacobian(Index keys) {
  const double n = static_cast<double>(keys);
  return std::sqrt(n - 1) / n;
}

// The largest logits are points of a Poisson process: those above b, the level that one key exceeds
// on average, decay at the rate h.
double saturated_jacobian(Index keys, double sigma) {
  double low = -9, high = 9;
  while (high - low > 1e-12) {
    const double middle = (low + high) / 2;
    (static_cast<double>(keys) * above(middle) > 1 ? low : high) = middle;
  }
  const double x = density(low) / above(low) / sigma;
  return std::sqrt(x * (1 - x) / 3);
}

}  // namespace rapt::lab
