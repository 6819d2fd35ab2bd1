#include "attention/call.h"

#include <string>

#include "base/check.h"

namespace rapt::detail {
namespace {

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
    fail(where, ": the plan is of ", shortened(to_string(how.plan->pattern())),
         " but the pattern is ", shortened(to_string(how.pattern)), ", expected the same");
  }
  return how.plan;
}

void check_factors(const char* where, const Attention& how, const ScoreRule& rule) {
  check(factor_fits(rule.largest_scale()), where, ": the scale comes to ", rule.largest_scale(),
        ", expected 0 or a size from 2^-40 to 2^40");
  check(!how.softcap || factor_fits(*how.softcap), where, ": softcap is ", how.softcap.value_or(0),
        ", expected 2^-40 to 2^40, or none");
}

}  // namespace

Call::Call(const Request& request) : Call(request, nullptr) {}
Call::Call(const Request& request, const CallPart& part_) : Call(request, &part_) {}

Call::Call(const Request& request, const CallPart* part_)
    : q(request.q),
      k(request.k),
      v(request.v),
      how(request.how),
      context(request.context),
      kernels(kernels_of(context)),
      batch(q.batch()),
      heads(q.heads()),
      kv_heads(k.heads()),
      group(heads == 0 ? 1 : heads / kv_heads),
      queries(q.tokens()),
      keys(k.tokens()),
      dim(q.dim()),
      value_dim(v.dim()),
      part(part_),
      plan(plan_of(request.where, how, {queries, keys})),
      whole(part == nullptr ? plan->lengths() : part->whole),
      score_rule(how, *plan, whole, heads, dim),
      relative(how.bias.keys
                   ? std::make_unique<const RelativeTiles>(how.bias.keys->table, whole, kernels)
                   : nullptr),
      relative_values(how.relative_values.empty() ? nullptr
                                                  : std::make_unique<const RelativeTiles>(
                                                        how.relative_values, whole, kernels)) {
  check_factors(request.where, how, score_rule);
}

AnyView stand_in(const Shape& shape, Type type) {
  static const float zero = 0;
  if (shape.rank() == 4) return AnyView::unchecked(&zero, type, shape, {0, 0, 0, 1});
  Shape strides = shape;
  for (Index axis = 0; axis < shape.rank(); ++axis)
    strides[axis] = axis + 1 == shape.rank() ? 1 : 0;
  return AnyView::unchecked(&zero, type, shape, strides);
}

}  // namespace rapt::detail
