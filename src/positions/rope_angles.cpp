#include "positions/rope_angles.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt::detail {
namespace {

constexpr double two_pi = 2 * std::numbers::pi;

/// base^(-2i / channels) of every pair.
std::vector<double> plain_frequencies(double base, Index channels) {
  std::vector<double> frequencies;
  for (Index i = 0; i < channels / 2; ++i)
    frequencies.push_back(
        std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(channels)));
  return frequencies;
}

/// The base whose lowest frequency is that of `base` divided by `factor`.
double stretched_base(double base, double factor, Index channels) {
  const auto width = static_cast<double>(channels);
  return base * std::pow(factor, width / (width - 2));
}

/// YaRN's growth of cosines and sines.
double yarn_growth(double factor, double strength) {
  return factor <= 1 ? 1 : 0.1 * strength * std::log(factor) + 1;
}

double yarn_attention_factor(const YarnRope& s) {
  if (s.attention_factor) return *s.attention_factor;
  if (s.mscale && s.mscale_all_dim)
    return yarn_growth(s.factor, *s.mscale) / yarn_growth(s.factor, *s.mscale_all_dim);
  return yarn_growth(s.factor, 1);
}

double long_attention_factor(const LongRope& s) {
  if (s.attention_factor) return *s.attention_factor;
  if (s.factor <= 1) return 1;
  return std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.trained_tokens)));
}

/// Frequencies and their factor for each kind of scaling.
struct Scaled {
  double base;
  Index channels;
  Index length;  // a length_class

  RopeAngles operator()(const std::monostate&) const {
    return {plain_frequencies(base, channels), 1};
  }
  RopeAngles operator()(const LinearRope& s) const {
    RopeAngles angles{plain_frequencies(base, channels), 1};
    for (double& frequency : angles.frequencies) frequency /= s.factor;
    return angles;
  }
  RopeAngles operator()(const NtkRope& s) const {
    return {plain_frequencies(stretched_base(base, s.factor, channels), channels), 1};
  }
  RopeAngles operator()(const DynamicNtkRope& s) const {
    const double longer = static_cast<double>(length) / static_cast<double>(s.trained_tokens);
    return (*this)(NtkRope{s.factor * longer - (s.factor - 1)});
  }

  /// The ramp is over pair indices, as in every published implementation; the paper draws it over
  /// the number of rotations.
  RopeAngles operator()(const YarnRope& s) const {
    const auto pair_that_rotates = [&](double times) {
      return static_cast<double>(channels) *
             std::log(static_cast<double>(s.trained_tokens) / (two_pi * times)) /
             (2 * std::log(base));
    };
    double low = pair_that_rotates(s.fast), high = pair_that_rotates(s.slow);
    if (s.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(channels - 1));
    if (low == high) high += 0.001;
    RopeAngles angles{plain_frequencies(base, channels), yarn_attention_factor(s)};
    for (std::size_t i = 0; i < angles.frequencies.size(); ++i) {
      const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      angles.frequencies[i] *= (1 - ramp) + ramp / s.factor;
    }
    return angles;
  }

  RopeAngles operator()(const Llama3Rope& s) const {
    RopeAngles angles{plain_frequencies(base, channels), 1};
    for (double& frequency : angles.frequencies) {
      const double waves = static_cast<double>(s.trained_tokens) * frequency / two_pi;
      const double kept = std::clamp((waves - s.low) / (s.high - s.low), 0.0, 1.0);
      frequency = (1 - kept) * frequency / s.factor + kept * frequency;
    }
    return angles;
  }

  RopeAngles operator()(const LongRope& s) const {
    RopeAngles angles{plain_frequencies(base, channels), long_attention_factor(s)};
    const std::vector<double>& divisors =
        length > s.trained_tokens ? s.long_factors : s.short_factors;
    for (std::size_t i = 0; i < divisors.size(); ++i) angles.frequencies[i] /= divisors[i];
    return angles;
  }
};

/// Every section counts its frequencies from its own first pair.
std::vector<double> restarted_frequencies(double base, const std::vector<Index>& sections) {
  std::vector<double> frequencies;
  for (const Index pairs : sections) {
    const std::vector<double> part = plain_frequencies(base, 2 * pairs);
    frequencies.insert(frequencies.end(), part.begin(), part.end());
  }
  return frequencies;
}

}  // namespace

Index length_class(const RopeOptions& options, Index tokens) {
  if (const auto* dynamic = std::get_if<DynamicNtkRope>(&options.scaling))
    return std::max(tokens, dynamic->trained_tokens);
  if (const auto* longer = std::get_if<LongRope>(&options.scaling))
    return tokens > longer->trained_tokens ? longer->trained_tokens + 1 : longer->trained_tokens;
  return 0;
}

RopeAngles rope_angles(const RopeOptions& options, Index length) {
  const Index channels = paired_channels(options);
  RopeAngles angles = std::visit(Scaled{options.base, channels, length}, options.scaling);
  if (options.sections.order == RopeSections::Order::restarted && !options.sections.pairs.empty())
    angles.frequencies = restarted_frequencies(options.base, options.sections.pairs);
  for (const double frequency : angles.frequencies)
    check(std::isfinite(frequency), "rope: a frequency comes to ", frequency, " with base ",
          options.base, ", expected a finite number");
  if (options.proportional && options.rotated) {
    const auto fixed = angles.frequencies.begin() + *options.rotated / 2;
    std::fill(fixed, angles.frequencies.end(), 0.0);
  }
  return angles;
}

std::vector<Index> axis_of_pairs(const RopeOptions& options) {
  const auto& sections = options.sections.pairs;
  std::vector<Index> axes;
  if (options.sections.order == RopeSections::Order::interleaved) {
    const auto count = static_cast<Index>(sections.size());
    for (Index i = 0; i < paired_channels(options) / 2; ++i) {
      const Index axis = count == 0 ? 0 : i % count;
      const bool left = axis > 0 && i < count * element(sections, axis);
      axes.push_back(left ? axis : 0);
    }
    return axes;
  }
  for (std::size_t axis = 0; axis < sections.size(); ++axis)
    axes.insert(axes.end(), to_size(sections[axis]), static_cast<Index>(axis));
  axes.resize(to_size(paired_channels(options) / 2));
  return axes;
}

}  // namespace rapt::detail
