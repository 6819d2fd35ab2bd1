#include "rapt/attention.h"

#include <algorithm>

#include "attention/backward/backward.h"
#include "attention/call.h"
#include "attention/dispatch.h"
#include "attention/forward/unrounded_out.h"
#include "attention/lsh/lsh_attend.h"
#include "attention/pattern/pattern_node.h"
#include "attention/validate.h"
#include "base/check.h"
#include "base/flush_denormals.h"

namespace rapt {
using namespace detail;
namespace {

Attended run(const Request& request, const AnyMutableView& to) {
  const AnyView& q = request.q;
  Attended attended = make_results({q.batch(), q.heads(), q.tokens()}, request.how.stats);
  UnroundedOut out(to, gradients_of(request.how));
  Job job{request, output_of(attended, out.view())};
  dispatch({&job, 1});
  out.finish(attended.rows, request.context);
  return attended;
}

Shape out_shape(const Request& r) { return {r.q.batch(), r.q.heads(), r.queries(), r.v.dim()}; }

void check_out(const AnyMutableView& out, const Request& r) {
  check_output(r.where, "out", out, out_shape(r));
  check_apart(r.where, out, r.q, "q");
  check_apart(r.where, out, r.k, "k");
  check_apart(r.where, out, r.v, "v");
  if (r.how.bias.dense) check_apart(r.where, out, r.how.bias.dense->values, "the dense bias");
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

/// Zero gradients for every learnable part of the score that this call has.
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
          to_string(views[i].type()), ", expected ", to_string(operand.view.type()), " as ",
          operand.name);
    for (const Operand& other : operands)
      check_apart("attend_backward", views[i], other.view, other.name);
  }
}

}  // namespace

Attended attend(AnyView q, AnyView k, AnyView v, const Attention& how, const Context& context) {
  const FlushDenormals guard;  // whatever the caller rounds like, rapt rounds to nearest
  const Request request{"attend", q, k, v, how, context};
  validate(request);
  Tensor out = Tensor::uninitialized(out_shape(request), q.type());
  Attended attended = run(request, out);
  attended.out = std::move(out);
  return attended;
}

Attended attend_into(AnyMutableView out, AnyView q, AnyView k, AnyView v, const Attention& how,
                     const Context& context) {
  const FlushDenormals guard;  // whatever the caller rounds like, rapt rounds to nearest
  const Request request{"attend", q, k, v, how, context};
  validate(request);
  check_out(out, request);
  return run(request, out);
}

namespace {

Gradients backward(const GradientViews& to, const OutputGradients& given, const Request& request,
                   const AttendedView& attended) {
  const auto& [dout, dlse] = given;
  const auto& [out, rows, global_rows] = attended;
  const FlushDenormals guard;
  const Attention& how = request.how;
  const bool hashed = node_of(how.pattern)->has_lsh();
  check(dlse.empty() || !hashed, request.where,
        ": a gradient of lse is given, expected none under lsh");
  validate(request);
  if (hashed) {
    run_lsh_backward(to, dout, request, out, rows);
    return {};
  }
  const BackwardRoute& route = backward_route_of(request, dout);
  const Call call(request);
  check_operand(request.where, "dout", dout, out_shape(request));
  check_operand(request.where, "out", out, out_shape(request));
  check_rows(call, rows);
  check_dlse(call, dlse);
  Gradients gradients = score_gradients(call);
  route.run({call, dout, unrounded(request.where, attended), rows, dlse}, to, gradients);
  return gradients;
}

}  // namespace

Gradients attend_backward_into(const GradientViews& to, const OutputGradients& given, AnyView q,
                               AnyView k, AnyView v, const AttendedView& attended,
                               const Attention& how, const Context& context) {
  check_destinations(to,
                     {{q, "q"}, {k, "k"}, {v, "v"}, {given.dout, "dout"}, {attended.out, "out"}});
  return backward(to, given, {"attend_backward", q, k, v, how, context}, attended);
}

Gradients attend_backward(const OutputGradients& given, AnyView q, AnyView k, AnyView v,
                          const AttendedView& attended, const Attention& how,
                          const Context& context) {
  Tensor dq = Tensor::uninitialized(q.shape(), q.type());
  Tensor dk = Tensor::uninitialized(k.shape(), k.type());
  Tensor dv = Tensor::uninitialized(v.shape(), v.type());
  Gradients gradients =
      backward({dq, dk, dv}, given, {"attend_backward", q, k, v, how, context}, attended);
  gradients.dq = std::move(dq);
  gradients.dk = std::move(dk);
  gradients.dv = std::move(dv);
  return gradients;
}

}  // namespace rapt
