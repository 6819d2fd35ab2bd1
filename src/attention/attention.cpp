#include "rapt/attention.h"

#include <algorithm>

#include "attention/backward.h"
#include "attention/call.h"
#include "attention/decode.h"
#include "attention/direct.h"
#include "attention/forward.h"
#include "attention/lsh_attend.h"
#include "attention/pattern_node.h"
#include "attention/stats.h"
#include "attention/unrounded_out.h"
#include "base/check.h"
#include "base/fpmode.h"

namespace rapt {
namespace {

/// Room for what a call with so many rows leaves besides its output.
Attended results(const Shape& rows, bool stats) {
  const auto count = static_cast<std::size_t>(rows.elements());
  Attended attended;
  attended.lse = Tensor(rows);
  attended.rows.max.resize(count);
  attended.rows.sum.resize(count);
  if (stats) attended.stats = make_stats(rows);
  return attended;
}

Attended forward(const Call& call, AnyMutableView to) {
  Attended attended = results({call.batch, call.heads, call.queries}, call.how.stats);
  UnroundedOut out(to, gradients_of(call.how));
  const ForwardOutput output{out.view(), &attended.lse, &attended.rows,
                             attended.stats ? &*attended.stats : nullptr};
  if (decodes(call)) {
    run_decode(call, output);
  } else {
    run_forward(call, output);
  }
  out.finish(attended.rows, call.context);
  return attended;
}

/// The keys of a call that goes the direct way.
std::optional<DirectKeys> checked_direct_keys(const AnyView& q, const AnyView& k, const AnyView& v,
                                              const Attention& how) {
  if (!may_go_directly(q, how)) return std::nullopt;
  check_call("attend", q, k, v, how);
  return direct_keys(how, k.tokens(), q.dim());
}

Attended forward(const AnyView& q, const AnyView& k, const AnyView& v, const DirectKeys& keys,
                 const Context& context, UnroundedOut out) {
  Attended attended = results({q.batch(), q.heads(), q.tokens()}, false);
  run_direct(q, k, v, keys, {out.view(), &attended.lse, &attended.rows, nullptr}, context);
  out.finish(attended.rows, context);
  return attended;
}

Shape out_shape(const Call& call) { return {call.batch, call.heads, call.queries, call.value_dim}; }

void check_out(const AnyMutableView& out, const Shape& shape, const AnyView& q, const AnyView& k,
               const AnyView& v) {
  check_output("attend", "out", out, shape);
  check_apart("attend", out, q, "q");
  check_apart("attend", out, k, "k");
  check_apart("attend", out, v, "v");
}

void check_rows(const Call& call, const Rows& rows) {
  const auto fits = [&](std::size_t size) { return static_cast<Index>(size) == call.rows(); };
  check(fits(rows.max.size()) && fits(rows.sum.size()), "attend_backward: rows have ",
        rows.max.size(), " max and ", rows.sum.size(), " sum, expected ", call.rows(),
        " of each (batch * heads * queries)");
}

void check_dlse(const Call& call, const View& dlse) {
  if (dlse.empty()) return;
  const Shape shape{call.batch, call.heads, call.queries};
  check(dlse.shape() == shape, "attend_backward: dlse has shape ", dlse.shape(), ", expected ",
        shape);
  check_memory("attend_backward", "dlse", dlse);
}

bool wants_dense(const Attention& how) { return how.bias.dense && !how.bias.dense->fixed; }

/// Of what is learnt of the score.
Gradients score_gradients(const Call& call) {
  Gradients gradients;
  const Bias& bias = call.how.bias;
  if (bias.alibi) gradients.dslopes = Tensor({call.heads});
  if (bias.kerple) gradients.dkerple = Tensor({2, call.heads});
  if (bias.table) gradients.dtable = Tensor(bias.table->values.shape());
  if (bias.keys) gradients.drelative_keys = Tensor(bias.keys->table.shape());
  if (call.relative_values) gradients.drelative_values = Tensor(call.how.relative_values.shape());
  if (wants_dense(call.how)) gradients.ddense = Tensor(bias.dense->values.shape());
  if (!call.how.sinks.empty()) gradients.dsinks = Tensor({call.heads});
  return gradients;
}

struct Operand {
  AnyView view;
  const char* name;
};

/// Each gradient has the shape and type of its operand, and memory of its own.
void check_destinations(const GradientViews& to, std::initializer_list<Operand> operands) {
  const AnyMutableView views[] = {to.dq, to.dk, to.dv};
  constexpr const char* names[] = {"dq", "dk", "dv"};
  for (int i = 0; i < 3; ++i) {
    const Operand& operand = operands.begin()[i];
    check_output("attend_backward", names[i], views[i], operand.view.shape());
    check(views[i].type() == operand.view.type(), "attend_backward: ", names[i], " is ",
          text(views[i].type()), ", expected ", text(operand.view.type()), " as ", operand.name);
    for (const Operand& other : operands)
      check_apart("attend_backward", views[i], other.view, other.name);
  }
}

}  // namespace

Attended attend(AnyView q, AnyView k, AnyView v, const Attention& how, const Context& context) {
  const FlushDenormals guard;  // whatever the caller rounds like, rapt rounds to nearest
  if (how.pattern.node()->has_lsh()) {
    Tensor out;
    Attended attended = attend_lsh(nullptr, out, q, k, v, how, context);
    attended.out = std::move(out);
    return attended;
  }
  if (const auto keys = checked_direct_keys(q, k, v, how)) {
    Tensor out = Tensor::uninitialized({q.batch(), q.heads(), q.tokens(), v.dim()}, q.type());
    Attended attended = forward(q, k, v, *keys, context, {out, gradients_of(how)});
    attended.out = std::move(out);
    return attended;
  }
  const Call call("attend", q, k, v, how, context);
  Tensor out = Tensor::uninitialized(out_shape(call), q.type());
  Attended attended = forward(call, out);
  attended.out = std::move(out);
  return attended;
}

Attended attend_into(AnyMutableView out, AnyView q, AnyView k, AnyView v, const Attention& how,
                     const Context& context) {
  const FlushDenormals guard;  // whatever the caller rounds like, rapt rounds to nearest
  if (how.pattern.node()->has_lsh()) {
    Tensor none;
    return attend_lsh(&out, none, q, k, v, how, context);
  }
  if (const auto keys = checked_direct_keys(q, k, v, how)) {
    check_out(out, {q.batch(), q.heads(), q.tokens(), v.dim()}, q, k, v);
    return forward(q, k, v, *keys, context, {out, gradients_of(how)});
  }
  const Call call("attend", q, k, v, how, context);
  check_out(out, out_shape(call), q, k, v);
  if (how.bias.dense) check_apart("attend", out, how.bias.dense->values, "the dense bias");
  return forward(call, out);
}

namespace {

Gradients backward(const GradientViews& to, AnyView dout, AnyView q, AnyView k, AnyView v,
                   AnyView out, const Rows& rows, const Attention& how, const Context& context,
                   View dlse) {
  const FlushDenormals guard;
  check(dlse.empty() || !how.pattern.node()->has_lsh(),
        "attend_backward: a gradient of lse is given, expected none under lsh");
  if (how.pattern.node()->has_lsh()) {
    attend_lsh_backward(to, dout, q, k, v, out, rows, how, context);
    return {};
  }
  Call call("attend_backward", q, k, v, how, context);
  // The gradient of a dense bias is a pass of its own, in f32.
  if (dout.type() != Type::bf16 || how.bias.dense) call.pairs = nullptr;
  check_operand("attend_backward", "dout", dout, out_shape(call));
  check_operand("attend_backward", "out", out, out_shape(call));
  check_rows(call, rows);
  check_dlse(call, dlse);
  Gradients gradients = score_gradients(call);
  const BackwardInput input(call, dout, unrounded("attend_backward", out, rows), rows, dlse);
  std::transform(input.dsinks.begin(), input.dsinks.end(), gradients.dsinks.data(),
                 [](double x) { return static_cast<float>(x); });
  run_backward(call, input, to, gradients);
  if (wants_dense(how)) run_dense_gradient(call, input, gradients.ddense);
  return gradients;
}

}  // namespace

Gradients attend_backward_into(const GradientViews& to, AnyView dout, AnyView q, AnyView k,
                               AnyView v, AnyView out, const Rows& rows, const Attention& how,
                               const Context& context, View dlse) {
  check_destinations(to, {{q, "q"}, {k, "k"}, {v, "v"}, {dout, "dout"}, {out, "out"}});
  return backward(to, dout, q, k, v, out, rows, how, context, dlse);
}

Gradients attend_backward(AnyView dout, AnyView q, AnyView k, AnyView v, AnyView out,
                          const Rows& rows, const Attention& how, const Context& context,
                          View dlse) {
  Tensor dq = Tensor::uninitialized(q.shape(), q.type());
  Tensor dk = Tensor::uninitialized(k.shape(), k.type());
  Tensor dv = Tensor::uninitialized(v.shape(), v.type());
  Gradients gradients = backward({dq, dk, dv}, dout, q, k, v, out, rows, how, context, dlse);
  gradients.dq = std::move(dq);
  gradients.dk = std::move(dk);
  gradients.dv = std::move(dv);
  return gradients;
}

}  // namespace rapt
