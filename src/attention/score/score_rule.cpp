#include "attention/score/score_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/indexed_vector.h"

namespace rapt::detail {
namespace {

/// Finite numbers stay finite: -FLT_MAX is how some callers write "almost hidden".
float in_log2(double x) {
  constexpr double most = std::numeric_limits<float>::max();
  if (std::isnan(x)) return std::numeric_limits<float>::quiet_NaN();  // one that rounding keeps
  const double scaled = x * log2_e;
  return static_cast<float>(std::isfinite(x) ? std::clamp(scaled, -most, most) : scaled);
}

/// The scale, or for log_n what multiplies the logarithm of the keys a query sees.
double constant_scale(const Scale& scale, double dim) {
  switch (scale.rule) {
    case Scale::Rule::inverse_dim:
      return 1 / dim;
    case Scale::Rule::value:
      return scale.number;
    case Scale::Rule::log_n:
      return 1 / std::log(scale.number) / std::sqrt(dim);
    default:
      return 1 / std::sqrt(dim);
  }
}

double for_keys(const Scale& scale, double constant, Index seen) {
  if (scale.rule != Scale::Rule::log_n) return constant;
  return seen == 0 ? 0 : std::log(static_cast<double>(seen)) * constant;
}

/// KERPLE's bias is -amplitude times this.
double kerple_growth(const Kerple& kerple, Index head, double distance) {
  const auto rate = static_cast<double>(element(kerple.rates, head));
  return kerple.kind == Kerple::Kind::power ? std::pow(distance, rate)
                                            : std::log1p(rate * distance);
}

}  // namespace

double scale_of(const Scale& scale, Index dim, Index seen) {
  return for_keys(scale, constant_scale(scale, static_cast<double>(dim)), seen);
}

bool factor_fits(double factor) {
  constexpr double most = 0x1p40;
  return factor == 0 || (1 / most <= std::abs(factor) && std::abs(factor) <= most);
}

ScoreRule::ScoreRule(const Attention& how, const Plan& plan, Lengths lengths, Index heads,
                     Index dim)
    : how_(&how),
      plan_(&plan),
      lengths_(lengths),
      constant_scale_(constant_scale(how.scale, static_cast<double>(dim))),
      softcap_(how.softcap.value_or(0)) {
  if (!how.bias.alibi && !how.bias.kerple && !how.bias.table) return;
  // Relative positions 1 - keys .. queries - 1, with a tile of slack on both sides for padded rows
  // and keys.
  offset_ = lengths_.keys + tile;
  diagonal_length_ = lengths_.keys + lengths_.queries + 2 * tile;
  heads_ = heads;
}

Index ScoreRule::bucket_of(Index relative) const {
  if (!how_->bias.table) return 0;
  const RelativeTable& table = *how_->bias.table;
  return t5_bucket(relative, table.values.size(0), table.max_distance, table.direction);
}

double ScoreRule::table_number(Index head, Index bucket) const {
  if (!how_->bias.table) return 0;
  const View& values = how_->bias.table->values;
  return static_cast<double>(values.data()[bucket * values.stride(0) + head * values.stride(1)]);
}

float ScoreRule::diagonal_at(Index head, Index relative, Index bucket) const {
  const auto distance = static_cast<double>(std::abs(relative));
  const auto of_head = [&](const std::vector<float>& numbers) {
    return static_cast<double>(element(numbers, head));
  };
  double bias = 0;
  if (how_->bias.alibi) bias -= of_head(how_->bias.alibi->slopes) * distance;
  if (const auto& kerple = how_->bias.kerple)
    bias -= of_head(kerple->amplitudes) * kerple_growth(*kerple, head, distance);
  return in_log2(bias + table_number(head, bucket));
}

void ScoreRule::make_tables() const {
  if (how_->bias.table) {
    buckets_.resize(diagonal_length_);
    for (Index i = 0; i < diagonal_length_; ++i)
      buckets_[i] = static_cast<std::int32_t>(bucket_of(i - offset_));
  }
  diagonals_ = Buffer<float>(checked_product({heads_, diagonal_length_}));
  for (Index head = 0; head < heads_; ++head)
    for (Index i = 0; i < diagonal_length_; ++i)
      diagonals_[head * diagonal_length_ + i] =
          diagonal_at(head, i - offset_, buckets_.empty() ? 0 : buckets_[i]);
}

void ScoreRule::diagonal_part(Index head, Index first, Index count, float* out) const {
  // Buckets grow with the distance and have a last one: far away they are all the same.
  const Index bucket = bucket_of(first);
  const Index last_bucket = bucket_of(first + count - 1);
  const double slope =
      how_->bias.alibi ? static_cast<double>(element(how_->bias.alibi->slopes, head)) : 0;
  const double constant = table_number(head, bucket);
  const auto farthest = static_cast<double>(std::max(std::abs(first), std::abs(first + count - 1)));
  const double largest = (std::abs(slope) * farthest + std::abs(constant)) * log2_e;
  if (how_->bias.kerple || bucket != last_bucket ||
      !(largest < std::numeric_limits<float>::max())) {
    for (Index i = 0; i < count; ++i) out[i] = diagonal_at(head, first + i, bucket_of(first + i));
    return;
  }
  // diagonal_at without its questions: what a compiler makes vectors of.
  const auto start = static_cast<double>(first);
  const auto numbers = static_cast<std::int32_t>(count);
  for (std::int32_t i = 0; i < numbers; ++i) {
    const double distance = std::fabs(start + static_cast<double>(i));
    out[i] = static_cast<float>(((0 - slope * distance) + constant) * log2_e);
  }
}

ScoreRule::KerpleSlopes ScoreRule::kerple_slopes(Index head, Index relative) const {
  const Kerple& kerple = *how_->bias.kerple;
  const auto distance = static_cast<double>(std::abs(relative));
  const auto amplitude = static_cast<double>(element(kerple.amplitudes, head));
  const auto rate = static_cast<double>(element(kerple.rates, head));
  const double growth = kerple_growth(kerple, head, distance);
  if (kerple.kind == Kerple::Kind::logarithmic)
    return {-growth, -amplitude * distance / (1 + rate * distance)};
  return {-growth, distance == 0 ? 0 : -amplitude * growth * std::log(distance)};
}

double ScoreRule::scale(Index query) const {
  return for_keys(how_->scale, constant_scale_, scale_varies() ? plan_->keys_seen(query) : 0);
}

double ScoreRule::largest_scale() const {
  const double most =
      scale_varies() ? std::log(static_cast<double>(std::max<Index>(lengths_.keys, 1))) : 1;
  return std::abs(constant_scale_) * most;
}

double ScoreRule::query_factor(Index query) const { return scale(query) * logit_factor(); }

const float* ScoreRule::diagonal(Index head) const {
  if (!has_diagonal()) return nullptr;
  std::call_once(tables_made_, [this] { make_tables(); });
  return diagonals_.data() + head * diagonal_length_ + offset_;
}

bool ScoreRule::dense_tile(Index item, Index head, Index query_tile, Index key_tile, float* out,
                           std::uint64_t* mask) const {
  const View& bias = how_->bias.dense->values;
  const auto step = [&](Index axis) { return bias.size(axis) == 1 ? 0 : bias.stride(axis); };
  const Index rows = std::min(tile, lengths_.queries - query_tile * tile);
  const Index keys = std::min(tile, lengths_.keys - key_tile * tile);
  std::fill(out, out + tile * tile, 0.0f);
  bool hides = false;
  for (Index r = 0; r < rows; ++r) {
    const float* from = bias.data() + item * step(0) + head * step(1) +
                        (query_tile * tile + r) * step(2) + key_tile * tile * step(3);
    for (Index c = 0; c < keys; ++c) {
      const float x = from[c * step(3)];
      out[r * tile + c] = in_log2(x);
      if (x != -std::numeric_limits<float>::infinity()) continue;
      mask[r] &= ~(std::uint64_t{1} << c);
      hides = true;
    }
  }
  return hides;
}

double ScoreRule::sink_log2(Index head) const {
  return static_cast<double>(element(how_->sinks, head)) * log2_e;
}

double ScoreRule::kept_factor() const {
  const double kept = 1 - how_->dropout.rate;
  return kept > 0 ? 1 / kept : 0;
}

DropoutTile ScoreRule::dropout_tile(Index stream, Index query_tile, Index key_tile) const {
  const Dropout& drop = how_->dropout;
  return {
      .key = {static_cast<std::uint32_t>(drop.seed), static_cast<std::uint32_t>(drop.seed >> 32)},
      .stream = static_cast<std::uint32_t>(stream),
      .row = static_cast<std::uint32_t>(query_tile * tile),
      .column = static_cast<std::uint32_t>(key_tile * tile),
      .threshold = static_cast<std::uint64_t>(drop.rate * 4294967296.0),
      .keep = static_cast<float>(kept_factor())};
}

}  // namespace rapt::detail
