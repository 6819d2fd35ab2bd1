#include <cmath>
#include <utility>

#include "base/check.h"
#include "rapt/attention.h"

namespace rapt {
using namespace detail;
namespace {

template <class Part>
void join(std::optional<Part>& into, std::optional<Part>&& from, const char* name) {
  check(!into || !from, "bias: both sides of + have ", name, ", expected at most one");
  if (from) into = std::move(from);
}

std::vector<float> standard_slopes(Index heads) {
  Index power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<float> slopes;
  for (Index head = 0; head < heads; ++head) {
    const double exponent = head < power ? 8.0 * static_cast<double>(head + 1)
                                         : 4.0 * static_cast<double>(2 * (head - power) + 1);
    slopes.push_back(static_cast<float>(std::exp2(-exponent / static_cast<double>(power))));
  }
  return slopes;
}

}  // namespace

Bias operator+(Bias a, Bias b) {
  join(a.alibi, std::move(b.alibi), "ALiBi");
  join(a.kerple, std::move(b.kerple), "KERPLE");
  join(a.table, std::move(b.table), "a relative table");
  join(a.keys, std::move(b.keys), "relative keys");
  join(a.dense, std::move(b.dense), "a dense bias");
  return a;
}

Bias alibi(Index heads) {
  check(heads >= 0, "alibi: ", heads, " heads given, expected 0 or more");
  return alibi(standard_slopes(heads));
}

Bias alibi(std::vector<float> slopes) {
  Bias bias;
  bias.alibi = Alibi{std::move(slopes)};
  return bias;
}

Bias kerple_log(std::vector<float> amplitudes, std::vector<float> rates) {
  Bias bias;
  bias.kerple = Kerple{Kerple::Kind::logarithmic, std::move(amplitudes), std::move(rates)};
  return bias;
}

Bias kerple_power(std::vector<float> amplitudes, std::vector<float> rates) {
  Bias bias;
  bias.kerple = Kerple{Kerple::Kind::power, std::move(amplitudes), std::move(rates)};
  return bias;
}

Bias t5_bias(View values, Index max_distance, RelativeTable::Direction direction) {
  Bias bias;
  bias.table = RelativeTable{values, max_distance, direction};
  return bias;
}

Bias relative_keys(View table) {
  Bias bias;
  bias.keys = RelativeKeys{table};
  return bias;
}

Bias dense_bias(View values) {
  Bias bias;
  bias.dense = DenseBias{values};
  return bias;
}

Index t5_bucket(Index relative, Index buckets, Index max_distance,
                RelativeTable::Direction direction) {
  const bool both = direction == RelativeTable::Direction::both;
  const Index least = both ? 4 : 2;
  check(buckets >= least && max_distance > buckets / least, "t5_bucket: ", buckets,
        " buckets and max_distance ", max_distance, " given, expected at least ", least,
        " buckets and a distance beyond the exact ones");
  const Index side = both ? buckets / 2 : buckets;
  const Index base = both && relative > 0 ? side : 0;
  const Index distance = both ? std::abs(relative) : std::max<Index>(-relative, 0);
  const Index exact = side / 2;
  if (distance < exact) return base + distance;
  if (distance >= max_distance) return base + side - 1;
  // Divide before multiplying: in the other order distances on a bucket's edge are one too small.
  const double ratio = std::log(static_cast<double>(distance) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const Index bucket = exact + static_cast<Index>(ratio * static_cast<double>(side - exact));
  return base + std::min(side - 1, bucket);
}

}  // namespace rapt
