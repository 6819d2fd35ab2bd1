#include "support/truth/definition.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rapt::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double largest_size(const Doubles& numbers) {
  double largest = 0;
  for (const double x : numbers) largest = std::fmax(largest, std::fabs(x));  // passes over NaN
  return std::isinf(largest) ? 0 : largest;
}

/// T5's bucket as spec-positions B5 writes it.
Index bucket_of(Index relative, Index buckets, Index max_distance,
                RelativeTable::Direction direction) {
  const bool both = direction == RelativeTable::Direction::both;
  const Index half = both ? buckets / 2 : buckets;
  const Index base = both && relative > 0 ? half : 0;
  const Index distance = both ? std::abs(relative) : std::max<Index>(-relative, 0);
  const Index exact = half / 2;
  if (distance < exact) return base + distance;
  const double ratio = std::log(static_cast<double>(distance) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const auto step = static_cast<Index>(ratio * static_cast<double>(half - exact));
  return base + std::min(half - 1, exact + step);
}

/// Where the parts of the score of one (item, head, query, key) live.
struct Place {
  Index q, k, v, table = 0, relative = 0, value = 0,
                 dense = 0;  // offsets into the numbers of the problem
  double distance;
};

/// KERPLE's bias and its slopes in amplitude and rate, as spec-positions B8 writes them.
struct KerpleTerm {
  double bias, amplitude, rate;
};

KerpleTerm kerple_of(const Problem& p, Index head, double distance) {
  const double a = p.kerple[head], r = p.kerple[p.heads + head];
  if (p.how.bias.kerple->kind == Kerple::Kind::logarithmic)
    return {-a * std::log(1 + r * distance), -std::log(1 + r * distance),
            -a * distance / (1 + r * distance)};
  const double power = std::pow(distance, r);
  return {-a * power, -power, distance == 0 ? 0 : -a * power * std::log(distance)};
}

Place place_of(const Problem& p, Index item, Index head, Index query, Index key) {
  const Index kv_head = head / (p.heads / p.kv_heads);
  const Index position = p.keys - p.queries + query;
  Place at{.q = ((item * p.heads + head) * p.queries + query) * p.dim,
           .k = ((item * p.kv_heads + kv_head) * p.keys + key) * p.dim,
           .v = ((item * p.kv_heads + kv_head) * p.keys + key) * p.value_dim,
           .distance = std::fabs(static_cast<double>(position - key))};
  if (const auto& part = p.how.bias.table)
    at.table =
        bucket_of(key - position, part->values.size(0), part->max_distance, part->direction) *
            p.heads +
        head;
  if (const auto& part = p.how.bias.keys) {
    const Index reach = (part->table.size(0) - 1) / 2;
    at.relative = (std::clamp(key - position, -reach, reach) + reach) * p.dim;
  }
  if (!p.how.relative_values.empty()) {
    const Index reach = (p.how.relative_values.size(0) - 1) / 2;
    at.value = (std::clamp(key - position, -reach, reach) + reach) * p.value_dim;
  }
  if (const auto& part = p.how.bias.dense) {
    const std::array<Index, 4> index{item, head, query, key};
    for (Index axis = 0; axis < 4; ++axis) {
      const Index size = part->values.size(axis);
      at.dense = at.dense * size + (size == 1 ? 0 : index[static_cast<std::size_t>(axis)]);
    }
  }
  return at;
}

/// One query of one head. Everything is per seen key; S is the row's logit size without
/// cancellation.
struct Row {
  std::vector<Index> seen;
  std::vector<Place> at;
  Doubles logit, slope, probability, keep;  // slope: d logit / d (scaled dot product)
  double scale = 0, lse = -infinity, sink = 0, S = 0;
};

double scale_of(const Problem& p, Index keys_seen) {
  const auto dim = static_cast<double>(p.dim);
  switch (p.how.scale.rule) {
    case Scale::Rule::inverse_sqrt_dim:
      return 1 / std::sqrt(dim);
    case Scale::Rule::inverse_dim:
      return 1 / dim;
    case Scale::Rule::value:
      return p.how.scale.number;
    case Scale::Rule::log_n:
      break;
  }
  return std::log(static_cast<double>(keys_seen)) / std::log(p.how.scale.number) / std::sqrt(dim);
}

/// logit = softcap(scale * q·(k + relative key)) + biases.
///
/// Its size without cancellation is A + |biases|, A = |scale| * sum |q|(|k| + |relative key|); with
/// a cap the error of A shrinks by the slope, and a tanh of 2 ULP adds 2 |capped|.
void add_logit(const Problem& p, Index head, Row& row, const Place& at) {
  double dot = 0, size = 0;
  for (Index c = 0; c < p.dim; ++c) {
    const double q = p.q[at.q + c], k = p.k[at.k + c];
    const double relative = p.how.bias.keys ? p.relative_keys[at.relative + c] : 0;
    dot += q * (k + relative);
    size += std::fabs(q) * (std::fabs(k) + std::fabs(relative));
  }
  double logit = row.scale * dot, slope = 1;
  size *= std::fabs(row.scale);
  if (const double cap = p.how.softcap.value_or(0); cap > 0) {
    const double t = std::tanh(logit / cap);
    logit = cap * t;
    slope = 1 - t * t;
    size = slope * size + 2 * std::fabs(logit);
  }
  const auto add = [&](double bias) { logit += bias, size += std::fabs(bias); };
  if (p.how.bias.alibi) add(-p.slopes[head] * at.distance);
  if (p.how.bias.kerple) add(kerple_of(p, head, at.distance).bias);
  if (p.how.bias.table) add(p.table[at.table]);
  if (p.how.bias.dense) add(p.dense[at.dense]);
  row.logit.push_back(logit);
  row.slope.push_back(slope);
  row.S = std::fmax(row.S, size);
}

Row row_of(const Problem& p, Index item, Index head, Index query) {
  Row row;
  const Ranges ranges = p.how.pattern.keys_of(query, {p.queries, p.keys});
  Index count = 0;
  for (const Range& range : ranges) count += range.end - range.begin;
  row.scale = scale_of(p, count);
  for (const Range& range : ranges)
    for (Index key = range.begin; key < range.end; ++key) {
      const Place at = place_of(p, item, head, query, key);
      if (p.how.bias.dense && p.dense[at.dense] == -infinity) continue;  // hidden like a masked key
      row.seen.push_back(key);
      row.at.push_back(at);
      add_logit(p, head, row, at);
      row.keep.push_back(kept(p.how.dropout, item * p.heads + head, query, key));
    }
  if (row.seen.empty()) return row;
  const bool has_sink = !p.sinks.empty();
  double max = has_sink ? p.sinks[head] : -infinity;
  for (const double logit : row.logit) max = std::fmax(max, logit);
  double sum = has_sink ? std::exp(p.sinks[head] - max) : 0;
  for (const double logit : row.logit) sum += std::exp(logit - max);
  for (const double logit : row.logit) row.probability.push_back(std::exp(logit - max) / sum);
  if (has_sink) {
    row.sink = std::exp(p.sinks[head] - max) / sum;
    row.S = std::fmax(row.S, std::fabs(p.sinks[head]));
  }
  row.lse = max + std::log(sum);
  return row;
}

/// How far a pair's logit is below the denominator, -log p. exp sees this distance, and rounding it
/// costs a far pair more than S tells.
double below(const Row& row, std::size_t j) {
  return std::isfinite(row.logit[j]) ? row.lse - row.logit[j] : 0;
}

/// The value of a pair, v_j + relative value, and its size without cancellation.
struct PairValue {
  double number, size;
};

PairValue value_of(const Problem& p, const Place& at, Index t) {
  const double v = p.v[at.v + t];
  const double relative = p.relative_values.empty() ? 0 : p.relative_values[at.value + t];
  return {v + relative, std::fabs(v) + std::fabs(relative)};
}

/// sum p_j * keep_j * v_j, the same of |v|, and of |v| times -log p: one row.
struct Output {
  Doubles value, size, far, square;
};

Output output_of(const Problem& p, const Row& row) {
  Output out{Doubles(p.value_dim), Doubles(p.value_dim), Doubles(p.value_dim),
             Doubles(p.value_dim)};
  for (std::size_t j = 0; j < row.seen.size(); ++j)
    for (Index t = 0; t < p.value_dim; ++t) {
      const double weight = row.probability[j] * row.keep[j];
      const PairValue value = value_of(p, row.at[j], t);
      const double size = weight * value.size;
      out.value[t] += weight * value.number;
      out.size[t] += size;
      out.far[t] += size * below(row, j);
      out.square[t] += size * size;
    }
  return out;
}

Truth truth(Index elements) {
  return {Doubles(elements), Doubles(elements), 0,
          Doubles(elements), Doubles(elements), Doubles(elements)};
}

void put(Truth& truth, Index index, double value, double unit) {
  truth.value[index] = value;
  truth.unit[index] = unit;
}

/// A term, its size, and what rounding to bf16 may cost it.
void add(Truth& truth, Index index, double value, double unit, double size, double rounding) {
  truth.value[index] += value;
  truth.unit[index] += unit;
  truth.size[index] += size;
  truth.square[index] += size * size;
  truth.rounding[index] += rounding;
}

/// The statistics of one row. With rounding of relative size e = u32 * (4 + S) in every
/// probability: entropy is lse - sum p z, so e * (1 + |lse| + sum p |z|); the variance of numbers
/// of size <= S is known to e * S; |J|^2 = sum p^2 - 2 sum p^3 + (sum p^2)^2 to e times the sum of
/// its terms.
void put_stats(const Problem& p, const Row& row, Index index, Defined& defined) {
  if (row.seen.empty()) return;
  const double e = u32 * (4 + row.S), n = static_cast<double>(row.seen.size());
  double entropy = row.sink > 0 ? -row.sink * std::log(row.sink) : 0, weighted = 0, mean = 0;
  double largest = 0, reach = 0, first = 0, squares = row.sink * row.sink, variance = 0;
  double cubes = row.sink * row.sink * row.sink;
  for (std::size_t j = 0; j < row.seen.size(); ++j) {
    const double probability = row.probability[j];
    if (!(probability <= 0)) entropy -= probability * (row.logit[j] - row.lse);
    weighted += probability * std::fabs(row.logit[j]);
    mean += row.logit[j] / n;
    largest = std::isnan(probability) ? probability : std::max(largest, probability);
    reach += probability * row.at[j].distance;
    if (row.seen[j] == 0) first = probability;
    squares += probability * probability;
    cubes += probability * probability * probability;
  }
  for (const double logit : row.logit) variance += (logit - mean) * (logit - mean) / n;
  // Entries of J: p_i (1 - p_i) on the diagonal, -p_i p_j beside it; 1 - p_i from the other
  // outcomes.
  double total = row.sink, jacobian = 0;
  for (const double probability : row.probability) total += probability;
  const auto entry = [&](double probability) {
    const double others = total - probability;
    jacobian += probability * probability * (others * others + squares - probability * probability);
  };
  for (const double probability : row.probability) entry(probability);
  if (row.sink > 0) entry(row.sink);
  const double mass = p.sinks.empty() ? first : row.sink;
  put(defined.entropy, index, entropy, e * (1 + std::fabs(row.lse) + weighted));
  put(defined.largest, index, largest, e * largest);
  put(defined.logit_variance, index, variance, e * row.S);
  put(defined.jacobian_square, index, jacobian, 3 * e * (squares + 2 * cubes + squares * squares));
  put(defined.reach, index, reach, e * reach);
  put(defined.sink_mass, index, mass, e * mass);
}

}  // namespace

Defined define(const Problem& p) {
  const Index rows = p.batch * p.heads * p.queries;
  Defined defined;
  defined.out = truth(rows * p.value_dim);
  defined.out.floor = 0x1p-100 * (1 + largest_size(p.v));
  for (Truth* part :
       {&defined.lse, &defined.row_lse, &defined.entropy, &defined.largest, &defined.logit_variance,
        &defined.reach, &defined.sink_mass, &defined.jacobian_square})
    (*part = truth(rows)).floor = 0x1p-100 * static_cast<double>(1 + p.keys);
  for (Index r = 0; r < rows; ++r) {
    const Row row = row_of(p, r / p.queries / p.heads, r / p.queries % p.heads, r % p.queries);
    const Output out = output_of(p, row);
    for (Index t = 0; t < p.value_dim; ++t) {
      const Index at = r * p.value_dim + t;
      put(defined.out, at, out.value[t], u32 * ((4 + row.S) * out.size[t] + out.far[t]));
      defined.out.size[at] = out.size[t];
      defined.out.square[at] = out.square[t];
    }
    put(defined.lse, r, row.lse, u32 * (4 + row.S + std::fabs(row.lse)));
    put(defined.row_lse, r, row.lse, u32 * (4 + row.S));
    put_stats(p, row, r, defined);
  }
  return defined;
}

namespace {

/// dO·v_j and its size without cancellation.
PairValue upstream(const Problem& p, const Row& row, std::size_t j, const double* dout) {
  PairValue u{0, 0};
  for (Index t = 0; t < p.value_dim; ++t) {
    const PairValue value = value_of(p, row.at[j], t);
    u.number += row.keep[j] * dout[t] * value.number;
    u.size += row.keep[j] * std::fabs(dout[t]) * value.size;
  }
  return u;
}

/// Adds what one row gives to every gradient.
///
/// u_j = keep_j dO·v_j, D = sum p u, dz = p (u - D), dSbar = p (keep_j sum |dO v| + sum |dO| M) as
/// in 1.3. A softcap multiplies dz by 1 - tanh^2, which is known to u32 in absolute terms only: its
/// size without cancellation is taken as 1. Bias gradients are sums of dz (times the distance for
/// slopes); Shaw's are like dK, summed over the pairs of a distance; a sink's is -p_sink D, of size
/// p_sink sum |dO| M. Each sum counts its terms with the 4 + S of the row they come from, and with
/// -log p of the pair: exp sees the distance of the logit from the denominator, and rounding that
/// distance costs a far pair, whose gradient stands alone in dk, dv and ddense, more than S tells.
///
/// Probabilities rounded to bf16, p (1 + e), move D by sum p e (u - D), at most u16 M with M = sum
/// p |u - D|; their sum and the rounding of dz cost 2 u16 of dz: together p (2 |u - D| + M).
void add_row_gradients(const Problem& p, const Row& row, Index head, const double* dout,
                       DefinedGradients& d) {
  const Output out = output_of(p, row);
  const double scale = row.scale, scale_size = std::fabs(scale);
  double D = 0, D_size = 0;
  for (Index t = 0; t < p.value_dim; ++t) {
    D += dout[t] * out.value[t];
    D_size += std::fabs(dout[t]) * out.size[t];
  }
  double M = 0;
  for (std::size_t j = 0; j < row.seen.size(); ++j)
    M += row.probability[j] * std::fabs(upstream(p, row, j, dout).number - D);
  for (std::size_t j = 0; j < row.seen.size(); ++j) {
    const Place& at = row.at[j];
    const double probability = row.probability[j], weight = probability * row.keep[j];
    const double e = u32 * (4 + row.S + below(row, j));
    const auto [u, u_size] = upstream(p, row, j, dout);
    for (Index t = 0; t < p.value_dim; ++t) {
      const double size = weight * std::fabs(dout[t]);
      add(d.dv, at.v + t, weight * dout[t], e * size, size, 2 * size);
      if (!p.relative_values.empty())
        add(d.drelative_values, at.value + t, weight * dout[t], e * size, size, 2 * size);
    }
    const double dz = probability * (u - D), dz_size = probability * (u_size + D_size);
    const double dz_rounding = probability * (2 * std::fabs(u - D) + M);
    const auto add_sized = [&](Truth& truth, Index index, double slope) {
      const double size = dz_size * std::fabs(slope);
      add(truth, index, dz * slope, e * size, size, dz_rounding * std::fabs(slope));
    };
    if (p.how.bias.alibi) add_sized(d.dslopes, head, -at.distance);
    if (p.how.bias.kerple) {
      const KerpleTerm term = kerple_of(p, head, at.distance);
      add_sized(d.dkerple, head, term.amplitude);
      add_sized(d.dkerple, p.heads + head, term.rate);
    }
    if (p.how.bias.table) add_sized(d.dtable, at.table, 1);
    if (p.how.bias.dense) add_sized(d.ddense, at.dense, 1);
    const double ds = scale * row.slope[j] * dz, ds_size = scale_size * dz_size;
    const double ds_rounding = scale_size * dz_rounding;
    for (Index c = 0; c < p.dim; ++c) {
      const double q = p.q[at.q + c], k = p.k[at.k + c];
      const double relative = p.how.bias.keys ? p.relative_keys[at.relative + c] : 0;
      const double k_size = std::fabs(k) + std::fabs(relative);
      const double dk_size = ds_size * std::fabs(q), dk_rounding = ds_rounding * std::fabs(q);
      add(d.dq, at.q + c, ds * (k + relative), e * ds_size * k_size, ds_size * k_size,
          ds_rounding * k_size);
      add(d.dk, at.k + c, ds * q, e * dk_size, dk_size, dk_rounding);
      if (p.how.bias.keys)
        add(d.drelative_keys, at.relative + c, ds * q, e * dk_size, dk_size, dk_rounding);
    }
  }
  if (!p.sinks.empty() && !row.seen.empty())
    add(d.dsinks, head, -row.sink * D, u32 * (4 + row.S) * row.sink * D_size, row.sink * D_size,
        row.sink * (std::fabs(D) + M));
}

}  // namespace

DefinedGradients define_gradients(const Problem& p, const Doubles& dout) {
  DefinedGradients d;
  const double sizes = (1 + largest_size(p.v)) * (1 + largest_size(dout)) *
                       (1 + largest_size(p.q) + largest_size(p.k));
  const auto like = [&](Truth& gradient, const Doubles& numbers) {
    gradient = truth(static_cast<Index>(numbers.size()));
    gradient.floor = 0x1p-100 * sizes * static_cast<double>(p.queries + p.keys + 1);
  };
  like(d.dq, p.q), like(d.dk, p.k), like(d.dv, p.v);
  like(d.dslopes, p.slopes), like(d.dkerple, p.kerple), like(d.dtable, p.table),
      like(d.drelative_keys, p.relative_keys);
  like(d.drelative_values, p.relative_values);
  like(d.ddense, p.dense), like(d.dsinks, p.sinks);
  for (Index r = 0; r < p.batch * p.heads * p.queries; ++r) {
    const Index head = r / p.queries % p.heads;
    const Row row = row_of(p, r / p.queries / p.heads, head, r % p.queries);
    add_row_gradients(p, row, head, dout.data() + r * p.value_dim, d);
  }
  return d;
}

}  // namespace rapt::test
