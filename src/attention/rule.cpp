#include "attention/rule.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rapt {
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

}  // namespace

Rule::Rule(const Attention& how, const Plan& plan, Index heads, Index dim)
    : how_(&how),
      plan_(&plan),
      lengths_(plan.lengths()),
      constant_scale_(constant_scale(how.scale, static_cast<double>(dim))),
      softcap_(how.softcap) {
  if (!how.bias.alibi && !how.bias.table) return;
  // Relative positions 1 - keys .. queries - 1, with a tile of slack on both sides for padded rows
  // and keys.
  offset_ = lengths_.keys + tile;
  diagonal_length_ = lengths_.keys + lengths_.queries + 2 * tile;
  make_buckets();
  make_diagonals(heads);
}

void Rule::make_buckets() {
  if (!how_->bias.table) return;
  const RelativeTable& table = *how_->bias.table;
  buckets_vector_.resize(static_cast<std::size_t>(diagonal_length_));
  for (Index i = 0; i < diagonal_length_; ++i) {
    buckets_vector_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(
        t5_bucket(i - offset_, table.values.size(0), table.max_distance, table.direction));
  }
  buckets_ = buckets_vector_.data();
}

void Rule::make_diagonals(Index heads) {
  diagonals_ = Buffer<float>(checked_product({heads, diagonal_length_}));
  for (Index head = 0; head < heads; ++head) {
    float* out = diagonals_.data() + head * diagonal_length_;
    for (Index i = 0; i < diagonal_length_; ++i) {
      double bias = 0;
      if (how_->bias.alibi) {
        bias -= static_cast<double>(how_->bias.alibi->slopes[static_cast<std::size_t>(head)]) *
                static_cast<double>(std::abs(i - offset_));
      }
      if (how_->bias.table) {
        const View& values = how_->bias.table->values;
        bias += static_cast<double>(
            values.data()[buckets_[i] * values.stride(0) + head * values.stride(1)]);
      }
      out[i] = in_log2(bias);
    }
  }
}

double Rule::scale(Index query) const {
  if (!scale_varies()) return constant_scale_;
  const Index seen = plan_->keys_seen(query);
  return seen == 0 ? 0 : std::log(static_cast<double>(seen)) * constant_scale_;
}

double Rule::largest_scale() const {
  const double most =
      scale_varies() ? std::log(static_cast<double>(std::max<Index>(lengths_.keys, 1))) : 1;
  return std::abs(constant_scale_) * most;
}

double Rule::query_factor(Index query) const { return scale(query) * logit_factor(); }

const float* Rule::diagonal(Index head) const {
  return has_diagonal() ? diagonals_.data() + head * diagonal_length_ + offset_ : nullptr;
}

bool Rule::dense_tile(Index item, Index head, Index query_tile, Index key_tile, float* out,
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

double Rule::sink_log2(Index head) const {
  return static_cast<double>(how_->sinks[static_cast<std::size_t>(head)]) * log2_e;
}

double Rule::kept_factor() const {
  const double kept = 1 - how_->dropout.rate;
  return kept > 0 ? 1 / kept : 0;
}

DropTile Rule::drop_tile(Index stream, Index query_tile, Index key_tile) const {
  const Dropout& drop = how_->dropout;
  return {
      .key = {static_cast<std::uint32_t>(drop.seed), static_cast<std::uint32_t>(drop.seed >> 32)},
      .stream = static_cast<std::uint32_t>(stream),
      .row = static_cast<std::uint32_t>(query_tile * tile),
      .column = static_cast<std::uint32_t>(key_tile * tile),
      .threshold = static_cast<std::uint64_t>(drop.rate * 4294967296.0),
      .keep = static_cast<float>(kept_factor())};
}

}  // namespace rapt
