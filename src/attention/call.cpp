#include "attention/call.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/sizes.h"

namespace rapt {
namespace {

/// Bytes from the first to the last element, or nothing if that does not fit 64 bits.
std::optional<Index> extent_bytes(const AnyView& view) {
  Index span = 1;
  for (Index axis = 0; axis < view.shape().rank(); ++axis) {
    const Index stride = view.stride(axis);
    Index step = 0;
    if (stride == std::numeric_limits<Index>::min() ||
        __builtin_mul_overflow(view.size(axis) - 1, std::abs(stride), &step) ||
        __builtin_add_overflow(span, step, &span))
      return std::nullopt;
  }
  Index bytes = 0;
  if (__builtin_mul_overflow(span, static_cast<Index>(size_of(view.type())), &bytes))
    return std::nullopt;
  return bytes;
}

/// Whether the elements of a view can be there at all.
void check_memory(const char* where, const char* name, const AnyView& view) {
  check(view.shape().rank() == view.strides().rank(), where, ": ", name, " has shape ",
        view.shape(), " but strides ", view.strides());
  if (view.shape().elements() == 0) return;
  if (!extent_bytes(view)) {
    fail(where, ": ", name, " with shape ", view.shape(), " and strides ", view.strides(),
         " reaches beyond 64 bits, expected memory that can exist");
  }
  check(view.data() != nullptr, where, ": ", name, " has shape ", view.shape(),
        " but no memory (null pointer)");
  check(reinterpret_cast<std::uintptr_t>(view.data()) % size_of(view.type()) == 0, where, ": ",
        name, " is not aligned to ", size_of(view.type()), " bytes, as ", text(view.type()),
        " numbers must be");
}

void check_readable(const char* where, const char* name, const AnyView& view) {
  check(view.shape().rank() == 4, where, ": ", name, " has shape ", view.shape(),
        ", expected [batch, heads, tokens, dim]");
  check_memory(where, name, view);
  if (view.shape().elements() == 0) return;
  check(view.dim() == 1 || view.stride(3) == 1, where, ": the last axis of ", name, " has stride ",
        view.stride(3), ", expected 1 (contiguous)");
}

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

void check_relative_keys(const char* where, const View& table, Index dim) {
  const Shape& shape = table.shape();
  check(shape.rank() == 2 && shape[0] % 2 == 1 && shape[1] == dim, where,
        ": the relative keys have shape ", shape, ", expected [2 * reach + 1, ", dim, "]");
  check_memory(where, "the table of relative keys", table);
  check(dim == 1 || table.stride(1) == 1, where, ": the last axis of the relative keys has stride ",
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
  if (how.bias.table) check_table(where, *how.bias.table, heads);
  if (how.bias.keys) check_relative_keys(where, how.bias.keys->table, q.dim());
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

/// Scale and soft-cap are packed into the queries, whose numbers must neither overflow nor vanish.
void check_factors(const char* where, const Attention& how, const Rule& rule) {
  constexpr double most = 0x1p40;
  const auto fits = [](double x) { return x == 0 || (1 / most <= x && x <= most); };
  check(fits(rule.largest_scale()), where, ": the scale comes to ", rule.largest_scale(),
        ", expected 0 or a size from 2^-40 to 2^40");
  check(fits(how.softcap), where, ": softcap is ", how.softcap,
        ", expected 0 (none) or 2^-40 to 2^40");
}

/// First and one past the last address of a view that has elements.
struct Extent {
  std::uintptr_t begin, end;
};

Extent extent(const AnyView& view) {
  Index low = 0;
  Index high = 0;
  for (Index axis = 0; axis < view.shape().rank(); ++axis) {
    const Index reach = (view.size(axis) - 1) * view.stride(axis);
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.data());
  const auto bytes = [&](Index numbers) {
    return static_cast<std::uintptr_t>(numbers) * size_of(view.type());
  };
  return {base + bytes(low), base + bytes(high + 1)};
}

/// True if two different indices of the view name one element. Sorting axes by stride, each must
/// step over all smaller ones.
bool repeats_elements(const AnyView& view) {
  Index covered = 1;
  Shape order = view.strides();
  Shape sizes = view.shape();
  for (Index i = 0; i < order.rank(); ++i) {
    for (Index j = i + 1; j < order.rank(); ++j) {
      if (std::abs(order[j]) < std::abs(order[i])) {
        std::swap(order[i], order[j]);
        std::swap(sizes[i], sizes[j]);
      }
    }
  }
  for (Index axis = 0; axis < order.rank(); ++axis) {
    if (sizes[axis] == 1) continue;
    if (std::abs(order[axis]) < covered) return true;
    covered = std::abs(order[axis]) * (sizes[axis] - 1) + covered;
  }
  return false;
}

/// Pairs need all three operands in bf16. Statistics want exact probabilities and relative keys are
/// a table of f32: both go through f32.
const PairKernels* pairs_for(const Kernels& kernels, const AnyView& q, const AnyView& k,
                             const AnyView& v, const Attention& how) {
  const bool bf16 = q.type() == Type::bf16 && k.type() == Type::bf16 && v.type() == Type::bf16;
  return bf16 && !how.stats && !how.bias.keys ? kernels.pairs : nullptr;
}

}  // namespace

Call::Call(const char* where, AnyView q_, AnyView k_, AnyView v_, const Attention& how_,
           const Context& context_)
    : q((check_operands(where, q_, k_, v_), check_score(where, how_, q_, k_), q_)),
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
                              : nullptr) {
  check_factors(where, how, rule);
}

AnyView stand_in(const Shape& shape, Type type) {
  static const float zero = 0;
  Shape strides = shape;
  for (Index axis = 0; axis < shape.rank(); ++axis)
    strides[axis] = axis + 1 == shape.rank() ? 1 : 0;
  return AnyView::trusted(&zero, type, shape, strides);
}

void check_operand(const char* where, const char* name, const AnyView& view, const Shape& shape) {
  check_readable(where, name, view);
  check(view.shape() == shape, where, ": ", name, " has shape ", view.shape(), ", expected ",
        shape);
}

void check_output(const char* where, const char* name, const AnyMutableView& view,
                  const Shape& shape) {
  check_operand(where, name, view, shape);
  check(shape.elements() == 0 || !repeats_elements(view), where, ": ", name, " with strides ",
        view.strides(), " has elements that share memory, expected each element once");
}

void check_apart(const char* where, const AnyMutableView& out, const AnyView& in,
                 const char* name) {
  if (out.shape().elements() == 0 || in.shape().elements() == 0) return;
  const Extent a = extent(out);
  const Extent b = extent(in);
  check(a.end <= b.begin || b.end <= a.begin, where, ": out overlaps the memory of ", name,
        ", expected memory of its own");
}

}  // namespace rapt
