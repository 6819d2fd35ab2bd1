#include "attention/validate.h"

#include <cmath>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/views.h"
#include "kernels/kernels.h"

namespace rapt::detail {
namespace {

void check_dim(const char* where, const char* name, Index dim) {
  check(1 <= dim && dim <= max_dim, where, ": ", name, " has dim ", dim, ", expected 1 to ",
        max_dim);
}

void check_shapes(const char* where, const AnyView& q, const AnyView& k, const AnyView& v) {
  check(q.batch() == k.batch(), where, ": q has batch ", q.batch(), " but k has ", k.batch());
  check(k.batch() == v.batch(), where, ": k has batch ", k.batch(), " but v has ", v.batch());
  check(k.heads() == v.heads(), where, ": k has ", k.heads(), " heads but v has ", v.heads());
  check(k.tokens() == v.tokens(), where, ": k has ", k.tokens(), " keys but v has ", v.tokens());
  check(q.dim() == k.dim(), where, ": q has dim ", q.dim(), " but k has ", k.dim());
  check(q.heads() == 0 || (k.heads() > 0 && q.heads() % k.heads() == 0), where, ": q has ",
        q.heads(), " heads and k has ", k.heads(), ", expected k's heads to divide q's");
  check_dim(where, "q", q.dim());
  check_dim(where, "v", v.dim());
}

void check_scale(const char* where, const Scale& scale) {
  check(std::isfinite(scale.number), where, ": scale is ", scale.number,
        ", expected a finite number");
  check(scale.rule != Scale::Rule::log_n || scale.number > 1, where, ": log_n scale has base ",
        scale.number, ", expected more than 1");
}

void check_kerple(const char* where, const Kerple& kerple, Index heads) {
  const bool power = kerple.kind == Kerple::Kind::power;
  const auto count = static_cast<Index>(kerple.amplitudes.size());
  check(count == heads && kerple.rates.size() == kerple.amplitudes.size(), where, ": ", count,
        " KERPLE amplitudes and ", kerple.rates.size(), " rates given, expected one of each for ",
        heads, " heads");
  for (const float rate : kerple.rates)  // NaN comes out like any other
    check(!(power ? rate <= 0 || rate > 2 : rate < 0), where, ": a KERPLE rate of ", rate,
          power ? ", expected above 0 and at most 2" : ", expected 0 or more");
}

void check_table(const char* where, const RelativeTable& table, Index heads) {
  const Shape& shape = table.values.shape();
  check(shape.rank() == 2 && shape[1] == heads, where, ": the relative table has shape ", shape,
        ", expected [buckets, ", heads, "]");
  const bool both = table.direction == RelativeTable::Direction::both;
  const Index least = both ? 4 : 2;
  check(shape[0] >= least && shape[0] % least == 0, where, ": the relative table has ", shape[0],
        " buckets, expected a multiple of ", least);
  const Index exact = shape[0] / least;
  check(table.max_distance > exact, where, ": the relative table has max_distance ",
        table.max_distance, ", expected more than its ", exact, " exact distances");
  check_memory(where, "the relative table", table.values);
}

void check_relative(const char* where, const char* name, const View& table, Index dim) {
  const Shape& shape = table.shape();
  check(shape.rank() == 2 && shape[0] % 2 == 1 && shape[1] == dim, where, ": ", name,
        " have shape ", shape, ", expected [2 * reach + 1, ", dim, "]");
  check_memory(where, name, table);
  check(dim == 1 || table.stride(1) == 1, where, ": the last axis of ", name, " has stride ",
        table.stride(1), ", expected 1 (contiguous)");
}

void check_dense(const char* where, const View& bias, const Shape& full) {
  bool fits = bias.shape().rank() == 4;
  for (Index axis = 0; fits && axis < 4; ++axis)
    fits = bias.size(axis) == full[axis] || bias.size(axis) == 1;
  check(fits, where, ": the dense bias has shape ", bias.shape(), ", expected the four axes ", full,
        " or 1 on any of them");
  check_memory(where, "the dense bias", bias);
}

void check_score(const char* where, const Attention& how, const AnyView& q, const AnyView& k) {
  check_scale(where, how.scale);
  check(!how.softcap || (std::isfinite(*how.softcap) && *how.softcap > 0), where, ": softcap is ",
        how.softcap.value_or(0), ", expected a positive number, or none");
  const Index heads = q.heads();
  const auto count = [](const std::vector<float>& numbers) {
    return static_cast<Index>(numbers.size());
  };
  if (how.bias.alibi) {
    check(count(how.bias.alibi->slopes) == heads, where, ": ", count(how.bias.alibi->slopes),
          " ALiBi slopes given, expected one for each of ", heads, " heads");
  }
  if (how.bias.kerple) check_kerple(where, *how.bias.kerple, heads);
  if (how.bias.table) check_table(where, *how.bias.table, heads);
  if (how.bias.keys) check_relative(where, "the relative keys", how.bias.keys->table, q.dim());
  if (how.bias.dense)
    check_dense(where, how.bias.dense->values, {q.batch(), heads, q.tokens(), k.tokens()});
  check(how.sinks.empty() || count(how.sinks) == heads, where, ": ", count(how.sinks),
        " sinks given, expected one for each of ", heads, " heads");
  for (const float sink : how.sinks)  // beyond, an f32 maximum could not hold it
    check(!(sink > 0x1p20f), where, ": a sink of ", sink, ", expected at most 2^20");
  check(how.dropout.rate >= 0 && how.dropout.rate <= 1, where, ": dropout rate is ",
        how.dropout.rate, ", expected 0 to 1");
  check(how.dropout.rate == 0 || std::max(q.tokens(), k.tokens()) <= Index{1} << 32, where,
        ": dropout over ", std::max(q.tokens(), k.tokens()), " tokens, expected at most 2^32");
}

void check_values(const char* where, const Attention& how, const AnyView& v) {
  if (!how.relative_values.empty())
    check_relative(where, "the relative values", how.relative_values, v.dim());
}

/// Operands fit each other, and the score fits them.
void check_fit(const char* where, const AnyView& q, const AnyView& k, const AnyView& v,
               const Attention& how) {
  check_shapes(where, q, k, v);
  check_score(where, how, q, k);
  check_values(where, how, v);
}

void validate_lsh(const Request& r) {
  check(r.q.shape() == r.k.shape(), r.where, ": q has shape ", r.q.shape(), " and k ", r.k.shape(),
        ", expected the same under lsh");
  if (r.how.rotations) check_memory(r.where, "rotations", *r.how.rotations);
  check_lsh_score(r.where, r.how);
}

}  // namespace

void validate_operands(const char* where, const AnyView& q, const AnyView& k, const AnyView& v,
                       const Attention& how) {
  check_readable(where, "q", q);
  check_readable(where, "k", k);
  check_readable(where, "v", v);
  check_fit(where, q, k, v, how);
}

void check_lsh_score(const char* where, const Attention& how) {
  const bool biased = how.bias.alibi || how.bias.kerple || how.bias.table || how.bias.keys ||
                      how.bias.dense || !how.relative_values.empty();
  check(
      !biased && how.sinks.empty() && !how.stats && how.scale.rule != Scale::Rule::log_n, where,
      ": a bias, sinks, statistics or the log_n scale are given, expected none of them under lsh");
  check(how.plan == nullptr, where, ": a plan is given, expected none under lsh");
}

void validate(const Request& r) {
  if (r.cached) {
    if (r.cached->cache == nullptr) check_readable(r.where, "q", r.q);
    validate_cached(r);
    check_fit(r.where, r.q, r.k, r.v, r.how);
  } else {
    validate_operands(r.where, r.q, r.k, r.v, r.how);
  }
  if (node_of(r.how.pattern)->has_lsh()) {
    if (!r.cached) validate_lsh(r);
    return;
  }
  check(!r.how.rotations, r.where,
        ": rotations are given, expected none without an lsh leaf in the pattern");
  check(r.how.order == nullptr, r.where,
        ": an order of tokens is given, expected none without an lsh leaf in the pattern");
}

}  // namespace rapt::detail
