#include "rapt/longformer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "attention/forward/unrounded_out.h"
#include "attention/variants/longformer_tokens.h"
#include "attention/variants/part.h"
#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/views.h"

namespace rapt {
using namespace detail;
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
          .dropout = dropout_of_part(how.dropout, part),
          .gradients = how.gradients};
}

Index dilation_of(const Longformer& how, Index head) {
  return element(how.dilation, how.dilation.size() == 1 ? 0 : head);
}

/// Rows of all heads of an item at some positions, [1, heads, positions, dim].
Tensor rows_at(const AnyView& from, Index item, const std::vector<Index>& positions) {
  Tensor to({1, from.heads(), std::ssize(positions), from.dim()}, from.type());
  const AnyMutableView out = to;
  const auto bytes = to_size(from.dim()) * size_of(from.type());
  for (Index head = 0; head < from.heads(); ++head)
    for (Index i = 0; i < std::ssize(positions); ++i)
      std::memcpy(out.row(0, head, i), from.row(item, head, element(positions, i)), bytes);
  return to;
}

void put_rows(const Tensor& from, const AnyMutableView& to, Index item,
              const std::vector<Index>& positions) {
  const AnyView in = from;
  const auto bytes = to_size(to.dim()) * size_of(to.type());
  for (Index head = 0; head < to.heads(); ++head)
    for (Index i = 0; i < std::ssize(positions); ++i)
      std::memcpy(to.row(item, head, element(positions, i)), in.row(0, head, i), bytes);
}

void check_rows(const AttendedView& attended, const AnyView& q, const Longformer& how) {
  Index globals = 0;
  for (Index item = 0; item < q.batch(); ++item)
    globals += q.heads() * std::ssize(LongformerTokens(how, item, q.tokens()).globals());
  const auto fits = [](const Rows& rows, Index count) {
    return std::ssize(rows.max) == count && std::ssize(rows.sum) == count;
  };
  check(fits(attended.rows, q.batch() * q.heads() * q.tokens()) &&
            fits(attended.global_rows, globals),
        "attend_longformer_backward: rows of ", attended.rows.max.size(), " local and ",
        attended.global_rows.max.size(), " global tokens given, expected ",
        q.batch() * q.heads() * q.tokens(), " and ", globals,
        ", as attend gives with the same operands and classes");
}

void clear_item(const AnyMutableView& out, Index item) {
  const auto bytes = to_size(out.dim()) * size_of(out.type());
  for (Index head = 0; head < out.heads(); ++head)
    for (Index i = 0; i < out.tokens(); ++i) std::memset(out.row(item, head, i), 0, bytes);
}

using detail::part_of;
GradientViews part_of(const GradientViews& views, const Part& part) {
  return {part_of(views.dq, part), part_of(views.dk, part), part_of(views.dv, part)};
}

/// Backward in order: the heads that share a pattern, then the global tokens.
class Backward {
 public:
  Backward(const LongformerGradientViews& to, AnyView dout, const LongformerOperands& o,
           const AttendedView& attended, const Longformer& how, const Context& context)
      : to_(to),
        dout_(dout),
        o_(o),
        attended_(attended),
        out_(unrounded("attend_longformer_backward", attended)),
        how_(how),
        context_(context) {}

  void run() {
    for_each_part(how_, o_.q.batch(), o_.q.heads(), [&](Index item, Index head, Index count) {
      local({item, 1, head, count});
    });
    if (!any_global(how_)) return;
    first_ = 0;
    for (Index item = 0; item < o_.q.batch(); ++item) global(item);
  }

 private:
  void local(const Part& part) {
    const LongformerTokens classes(how_, part.item, o_.q.tokens());
    const Attention how = part_how(how_, classes.local(dilation_of(how_, part.head)), number_++);
    const Index rows = part.heads * o_.q.tokens();
    attend_backward_into(part_of(GradientViews{to_.dq, to_.dk, to_.dv}, part), part_of(dout_, part),
                         part_of(o_.q, part), part_of(o_.k, part), part_of(o_.v, part),
                         AttendedView(part_of(out_, part), slice(attended_.rows, first_, rows)),
                         how, context_);
    first_ += rows;
  }

  void global(Index item) {
    const LongformerTokens classes(how_, item, o_.q.tokens());
    const std::vector<Index>& globals = classes.globals();
    clear_item(to_.dq_global, item);
    if (globals.empty()) {
      clear_item(to_.dk_global, item);
      clear_item(to_.dv_global, item);
      return;
    }
    const Part all{item, 1, 0, o_.q.heads()};
    const Attention how = part_how(how_, classes.global(), number_++);
    const Index rows = o_.q.heads() * std::ssize(globals);
    const Tensor queries = rows_at(o_.q_global, item, globals);
    Tensor dqueries(queries.shape(), queries.type());
    attend_backward_into(
        {dqueries, part_of(to_.dk_global, all), part_of(to_.dv_global, all)},
        rows_at(dout_, item, globals), queries, part_of(o_.k_global, all),
        part_of(o_.v_global, all),
        AttendedView(rows_at(out_, item, globals), slice(attended_.global_rows, first_, rows)), how,
        context_);
    first_ += rows;
    put_rows(dqueries, to_.dq_global, item, globals);
  }

  const LongformerGradientViews& to_;
  AnyView dout_;
  const LongformerOperands& o_;
  const AttendedView& attended_;
  AnyView out_;
  const Longformer& how_;
  const Context& context_;
  Index number_ = 0, first_ = 0;  // parts, and rows of forward, so far
};

void check_backward(AnyView dout, const LongformerOperands& o, const AttendedView& attended,
                    const Longformer& how) {
  check_call("attend_longformer_backward", o, how);
  check_operand("attend_longformer_backward", "dout", dout, o.q.shape());
  check_operand("attend_longformer_backward", "out", attended.out, o.q.shape());
  check_rows(attended, o.q, how);
}

struct Named {
  AnyView view;
  const char* name;
};

std::array<Named, 6> operands_of(const LongformerOperands& o) {
  return {{{o.q, "q"},
           {o.k, "k"},
           {o.v, "v"},
           {o.q_global, "q_global"},
           {o.k_global, "k_global"},
           {o.v_global, "v_global"}}};
}

/// Each gradient has the shape and type of its operand, and memory of its own. Whole extents of two
/// gradients may overlap: they may be interleaved.
void check_destinations(const LongformerGradientViews& to, const LongformerOperands& o,
                        const Longformer& how, std::initializer_list<Named> others) {
  constexpr const char* where = "attend_longformer_backward";
  const std::array<AnyMutableView, 6> views = {to.dq,        to.dk,        to.dv,
                                               to.dq_global, to.dk_global, to.dv_global};
  constexpr const char* names[] = {"dq", "dk", "dv", "dq_global", "dk_global", "dv_global"};
  const std::array<Named, 6> operands = operands_of(o);
  for (std::size_t i = 0; i < (any_global(how) ? views.size() : 3); ++i) {
    const Named& own = operands[i];
    check_output(where, names[i], views[i], own.view.shape());
    check(views[i].type() == own.view.type(), where, ": ", names[i], " is ",
          to_string(views[i].type()), ", expected ", to_string(own.view.type()), " as ", own.name);
    for (const Named& operand : operands) check_apart(where, views[i], operand.view, operand.name);
    for (const Named& other : others) check_apart(where, views[i], other.view, other.name);
    for (std::size_t j = 0; j < i; ++j)
      check(views[i].data() != views[j].data(), where, ": ", names[j], " and ", names[i],
            " are given the same memory, expected memory of their own");
  }
}

Attended forward(const AnyMutableView& to, const LongformerOperands& o, const Longformer& how,
                 const Context& context) {
  UnroundedOut unrounded_out(to, gradients_of(how));
  const AnyMutableView out = unrounded_out.view();
  const Index heads = o.q.heads(), tokens = o.q.tokens();
  Attended attended;
  Index number = 0;
  for_each_part(how, o.q.batch(), heads, [&](Index item, Index head, Index count) {
    const LongformerTokens classes(how, item, tokens);
    const Attention local = part_how(how, classes.local(dilation_of(how, head)), number++);
    const auto part = [&](const AnyView& view) { return part_of(view, {item, 1, head, count}); };
    append(attended.rows, attend_into(part_of(out, {item, 1, head, count}), part(o.q), part(o.k),
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
    append(attended.global_rows, y.rows);
  }
  unrounded_out.finish(attended.rows, context);
  return attended;
}

}  // namespace

Attended attend_longformer(const LongformerOperands& o, const Longformer& how,
                           const Context& context) {
  check_call("attend_longformer", o, how);
  Tensor out = Tensor::uninitialized(o.q.shape(), o.q.type());
  Attended attended = forward(out, o, how, context);
  attended.out = std::move(out);
  return attended;
}

Attended attend_longformer_into(AnyMutableView out, const LongformerOperands& o,
                                const Longformer& how, const Context& context) {
  check_call("attend_longformer", o, how);
  check_output("attend_longformer", "out", out, o.q.shape());
  check(out.type() == o.q.type(), "attend_longformer: out is ", to_string(out.type()),
        ", expected ", to_string(o.q.type()), " as q");
  for (const Named& operand : operands_of(o))
    check_apart("attend_longformer", out, operand.view, operand.name);
  return forward(out, o, how, context);
}

void attend_longformer_backward_into(const LongformerGradientViews& to, AnyView dout,
                                     const LongformerOperands& o, const AttendedView& attended,
                                     const Longformer& how, const Context& context) {
  check_backward(dout, o, attended, how);
  check_destinations(to, o, how, {{dout, "dout"}, {attended.out, "out"}});
  Backward(to, dout, o, attended, how, context).run();
}

LongformerGradients attend_longformer_backward(AnyView dout, const LongformerOperands& o,
                                               const AttendedView& attended, const Longformer& how,
                                               const Context& context) {
  check_backward(dout, o, attended, how);
  const auto like = [](const AnyView& of) { return Tensor::uninitialized(of.shape(), of.type()); };
  LongformerGradients g{like(o.q), like(o.k), like(o.v), {}, {}, {}};
  LongformerGradientViews to{g.dq, g.dk, g.dv};
  if (any_global(how)) {
    g.dq_global = like(o.q_global);
    g.dk_global = like(o.k_global);
    g.dv_global = like(o.v_global);
    to.dq_global = g.dq_global;
    to.dk_global = g.dk_global;
    to.dv_global = g.dv_global;
  }
  Backward(to, dout, o, attended, how, context).run();
  return g;
}

}  // namespace rapt
