#include "attention/call.h"

#include <cmath>
#include <string>

#include "attention/decode.h"
#include "attention/direct.h"
#include "base/check.h"
#include "base/sizes.h"

namespace rapt {
namespace {

void check_dim(const char* where, const char* name, Index dim) {
  check(1 <= dim && dim <= max_dim, where, ": ", name, " has dim ", dim, ", expected 1 to ",
        max_dim);
}

void check_operands(const char* where, const AnyView& q, const AnyView& k, const AnyView& v) {
  check_readable(where, "q", q);
  check_readable(where, "k", k);
  check_readable(where, "v", v);
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
  check(std::isfinite(how.softcap) && how.softcap >= 0, where, ": softcap is ", how.softcap,
        ", expected 0 (none) or a positive number");
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

/// Patterns can be tables of thousands of numbers.
std::string shortened(std::string text) {
  constexpr std::size_t most = 80;
  if (text.size() > most) text.replace(most - 3, std::string::npos, "...");
  return text;
}

std::shared_ptr<const Plan> plan_of(const char* where, const Attention& how, Lengths lengths) {
  if (!how.plan) return std::make_shared<const Plan>(how.pattern, lengths);
  const Lengths given = how.plan->lengths();
  check(given == lengths, where, ": the plan is for ", given.queries, " queries and ", given.keys,
        " keys, expected ", lengths.queries, " and ", lengths.keys);
  if (!(how.pattern == how.plan->pattern())) {
    fail(where, ": the plan is of ", shortened(how.plan->pattern().text()), " but the pattern is ",
         shortened(how.pattern.text()), ", expected the same");
  }
  return how.plan;
}

void check_factors(const char* where, const Attention& how, const Rule& rule) {
  check(factor_fits(rule.largest_scale()), where, ": the scale comes to ", rule.largest_scale(),
        ", expected 0 or a size from 2^-40 to 2^40");
  check(factor_fits(how.softcap), where, ": softcap is ", how.softcap,
        ", expected 0 (none) or 2^-40 to 2^40");
}

/// Pairs need all three operands in bf16. Statistics want exact probabilities and relative keys and
/// values are tables of f32: they go through f32.
const PairKernels* pairs_for(const Kernels& kernels, const AnyView& q, const AnyView& k,
                             const AnyView& v, const Attention& how) {
  const bool bf16 = q.type() == Type::bf16 && k.type() == Type::bf16 && v.type() == Type::bf16;
  const bool tables = how.bias.keys || !how.relative_values.empty();
  return bf16 && !how.stats && !tables ? kernels.pairs : nullptr;
}

}  // namespace

void check_call(const char* where, const AnyView& q, const AnyView& k, const AnyView& v,
                const Attention& how) {
  check_operands(where, q, k, v);
  check_score(where, how, q, k);
  check_values(where, how, v);
}

Call::Call(const char* where, AnyView q_, AnyView k_, AnyView v_, const Attention& how_,
           const Context& context_)
    : q((check_call(where, q_, k_, v_, how_), q_)),
      k(k_),
      v(v_),
      how(how_),
      context(context_),
      kernels(kernels_of(context_)),
      pairs(pairs_for(kernels, q_, k_, v_, how_)),
      batch(q.batch()),
      heads(q.heads()),
      kv_heads(k.heads()),
      group(heads == 0 ? 1 : heads / kv_heads),
      queries(q.tokens()),
      keys(k.tokens()),
      dim(q.dim()),
      value_dim(v.dim()),
      plan(plan_of(where, how_, {queries, keys})),
      rule(how_, *plan, heads, dim),
      relative(how_.bias.keys ? std::make_unique<const RelativeTiles>(how_.bias.keys->table,
                                                                      plan->lengths(), kernels)
                              : nullptr),
      relative_values(how_.relative_values.empty()
                          ? nullptr
                          : std::make_unique<const RelativeTiles>(how_.relative_values,
                                                                  plan->lengths(), kernels)) {
  check_factors(where, how, rule);
  // A few queries are widened to f32 forward; backward has to round logits as forward did.
  if (decodes(*this) || direct_keys(*this)) pairs = nullptr;
  check(!how.rotations, where,
        ": rotations are given, expected none without an lsh leaf in the pattern");
  check(how.order == nullptr, where,
        ": an order of tokens is given, expected none without an lsh leaf in the pattern");
}

AnyView stand_in(const Shape& shape, Type type) {
  static const float zero = 0;
  Shape strides = shape;
  for (Index axis = 0; axis < shape.rank(); ++axis)
    strides[axis] = axis + 1 == shape.rank() ? 1 : 0;
  return AnyView::trusted(&zero, type, shape, strides);
}

}  // namespace rapt
