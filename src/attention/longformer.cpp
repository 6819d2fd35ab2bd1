#include "rapt/longformer.h"

#include <algorithm>

#include "attention/longformer_tokens.h"
#include "attention/parts.h"
#include "base/check.h"
#include "base/views.h"

namespace rapt {
namespace {

/// Calls with(item, first head, number of heads) for heads that share a pattern.
template <class With>
void for_each_part(const Longformer& how, Index batch, Index heads, const With& with) {
  const Index step = how.dilation.size() == 1 ? heads : 1;
  for (Index item = 0; item < batch; ++item) {
    for (Index head = 0; head < heads; head += step) with(item, head, step);
  }
}

bool any_global(const Longformer& how) {
  return std::count(how.classes.begin(), how.classes.end(), TokenClass::global) > 0;
}

void check_call(const char* where, const LongformerOperands& o, const Longformer& how) {
  check_readable(where, "q", o.q);
  check_operand(where, "k", o.k, o.q.shape());
  check_operand(where, "v", o.v, o.q.shape());
  if (any_global(how)) {
    check_operand(where, "q_global", o.q_global, o.q.shape());
    check_operand(where, "k_global", o.k_global, o.q.shape());
    check_operand(where, "v_global", o.v_global, o.q.shape());
  }
  const Index classes = std::ssize(how.classes), tokens = o.q.tokens();
  check(classes == 0 || classes == tokens || classes == o.q.batch() * tokens, where, ": ", classes,
        " token classes given, expected none, ", tokens, " (tokens) or ", o.q.batch() * tokens,
        " (batch * tokens)");
  for (const TokenClass c : how.classes)
    check(c <= TokenClass::global, where, ": a token class is ", static_cast<int>(c),
          ", expected 0 (padding), 1 (local) or 2 (global)");
  check(how.window >= 0, where, ": window is ", how.window, ", expected 0 or more");
  const Index dilations = std::ssize(how.dilation);
  check(dilations == 1 || dilations == o.q.heads(), where, ": ", dilations,
        " dilations given, expected 1 or ", o.q.heads(), " (heads)");
  for (const Index d : how.dilation)
    check(d >= 1, where, ": a dilation is ", d, ", expected 1 or more");
}

Attention part_how(const Longformer& how, Pattern pattern, Index part) {
  return {.pattern = std::move(pattern),
          .scale = how.scale,
          .dropout = dropout_of_part(how.dropout, part)};
}

Index dilation_of(const Longformer& how, Index head) {
  return how.dilation[how.dilation.size() == 1 ? 0 : static_cast<std::size_t>(head)];
}

/// Rows of all heads of an item at some positions, [1, heads, positions, dim].
Tensor rows_at(const AnyView& from, Index item, const std::vector<Index>& positions) {
  Tensor to({1, from.heads(), std::ssize(positions), from.dim()}, from.type());
  const AnyMutableView out = to;
  const auto bytes = static_cast<std::size_t>(from.dim()) * size_of(from.type());
  for (Index head = 0; head < from.heads(); ++head)
    for (Index i = 0; i < std::ssize(positions); ++i)
      std::memcpy(out.row(0, head, i), from.row(item, head, positions[static_cast<std::size_t>(i)]),
                  bytes);
  return to;
}

void put_rows(const Tensor& from, const AnyMutableView& to, Index item,
              const std::vector<Index>& positions) {
  const AnyView in = from;
  const auto bytes = static_cast<std::size_t>(to.dim()) * size_of(to.type());
  for (Index head = 0; head < to.heads(); ++head)
    for (Index i = 0; i < std::ssize(positions); ++i)
      std::memcpy(to.row(item, head, positions[static_cast<std::size_t>(i)]), in.row(0, head, i),
                  bytes);
}

void check_rows(const LongformerOutcome& attended, const AnyView& q, const Longformer& how) {
  Index globals = 0;
  for (Index item = 0; item < q.batch(); ++item)
    globals += q.heads() * std::ssize(LongformerTokens(how, item, q.tokens()).globals());
  const auto fits = [](const Rows& rows, Index count) {
    return std::ssize(rows.max) == count && std::ssize(rows.sum) == count;
  };
  check(fits(attended.local, q.batch() * q.heads() * q.tokens()) && fits(attended.global, globals),
        "Longformer backward: rows of ", attended.local.max.size(), " local and ",
        attended.global.max.size(), " global tokens given, expected ",
        q.batch() * q.heads() * q.tokens(), " and ", globals,
        ", as attend gives with the same operands and classes");
}

}  // namespace

LongformerAttended attend(const LongformerOperands& o, const Longformer& how,
                          const Context& context) {
  check_call("Longformer", o, how);
  const Index heads = o.q.heads(), tokens = o.q.tokens();
  LongformerAttended attended;
  attended.out = Tensor(o.q.shape(), o.q.type());
  const AnyMutableView out = attended.out;
  Index number = 0;
  for_each_part(how, o.q.batch(), heads, [&](Index item, Index head, Index count) {
    const LongformerTokens classes(how, item, tokens);
    const Attention local = part_how(how, classes.local(dilation_of(how, head)), number++);
    const auto part = [&](const AnyView& view) { return part_of(view, {item, 1, head, count}); };
    append(attended.local, attend_into(part_of(out, {item, 1, head, count}), part(o.q), part(o.k),
                                       part(o.v), local, context)
                               .rows);
  });
  for (Index item = 0; item < o.q.batch() && any_global(how); ++item) {
    const LongformerTokens classes(how, item, tokens);
    if (classes.globals().empty()) continue;
    const Attention global = part_how(how, classes.global(), number++);
    Tensor rows({1, heads, std::ssize(classes.globals()), out.dim()}, out.type());
    const Attended y = attend_into(rows, rows_at(o.q_global, item, classes.globals()),
                                   part_of(o.k_global, {item, 1, 0, heads}),
                                   part_of(o.v_global, {item, 1, 0, heads}), global, context);
    put_rows(rows, out, item, classes.globals());
    append(attended.global, y.rows);
  }
  return attended;
}

LongformerGradients attend_backward(AnyView dout, const LongformerOperands& o,
                                    const LongformerOutcome& attended, const Longformer& how,
                                    const Context& context) {
  check_call("Longformer backward", o, how);
  check_operand("Longformer backward", "dout", dout, o.q.shape());
  check_operand("Longformer backward", "out", attended.out, o.q.shape());
  const Index heads = o.q.heads(), tokens = o.q.tokens();
  check_rows(attended, o.q, how);
  LongformerGradients g;
  g.dq = Tensor(o.q.shape(), o.q.type());
  g.dk = Tensor(o.k.shape(), o.k.type());
  g.dv = Tensor(o.v.shape(), o.v.type());
  Index number = 0, first = 0;
  for_each_part(how, o.q.batch(), heads, [&](Index item, Index head, Index count) {
    const LongformerTokens classes(how, item, tokens);
    const Attention local = part_how(how, classes.local(dilation_of(how, head)), number++);
    const auto part = [&](const AnyView& view) { return part_of(view, {item, 1, head, count}); };
    const Gradients of_part =
        attend_backward(part(dout), part(o.q), part(o.k), part(o.v), part(attended.out),
                        slice(attended.local, first, count * tokens), local, context);
    first += count * tokens;
    copy_into(of_part.dq, part_of(AnyMutableView(g.dq), {item, 1, head, count}));
    copy_into(of_part.dk, part_of(AnyMutableView(g.dk), {item, 1, head, count}));
    copy_into(of_part.dv, part_of(AnyMutableView(g.dv), {item, 1, head, count}));
  });
  if (!any_global(how)) return g;
  g.dq_global = Tensor(o.q_global.shape(), o.q_global.type());
  g.dk_global = Tensor(o.k_global.shape(), o.k_global.type());
  g.dv_global = Tensor(o.v_global.shape(), o.v_global.type());
  first = 0;
  for (Index item = 0; item < o.q.batch(); ++item) {
    const LongformerTokens classes(how, item, tokens);
    const std::vector<Index>& globals = classes.globals();
    if (globals.empty()) continue;
    const Attention global = part_how(how, classes.global(), number++);
    const Index rows = heads * std::ssize(globals);
    const Gradients of_item = attend_backward(
        rows_at(dout, item, globals), rows_at(o.q_global, item, globals),
        part_of(o.k_global, {item, 1, 0, heads}), part_of(o.v_global, {item, 1, 0, heads}),
        rows_at(attended.out, item, globals), slice(attended.global, first, rows), global, context);
    first += rows;
    put_rows(of_item.dq, g.dq_global, item, globals);
    copy_into(of_item.dk, part_of(AnyMutableView(g.dk_global), {item, 1, 0, heads}));
    copy_into(of_item.dv, part_of(AnyMutableView(g.dv_global), {item, 1, 0, heads}));
  }
  return g;
}

}  // namespace rapt
