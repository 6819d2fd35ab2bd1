#include <algorithm>

#include "attention/forward/unrounded_out.h"
#include "base/check.h"
#include "base/flush_denormals.h"
#include "base/views.h"
#include "distributed/attention/backward_part.h"
#include "distributed/attention/lsh_ranks.h"
#include "distributed/attention/score_gradients.h"

namespace rapt::distributed {
namespace {

void check_backward(const RankCall& call, const OutputGradients& given,
                    const AttendedView& attended) {
  const Shape out{call.q.batch(), call.q.heads(), call.q.tokens(), call.v.dim()};
  check_operand(call.where, "dout", given.dout, out);
  check_operand(call.where, "out", attended.out, out);
  const Index rows = out[0] * out[1] * out[2];
  check(std::ssize(attended.rows.max) == rows && std::ssize(attended.rows.sum) == rows, call.where,
        ": rows have ", attended.rows.max.size(), " max and ", attended.rows.sum.size(),
        " sum, expected ", rows, " of each (batch * heads * queries)");
  if (given.dlse.empty()) return;
  const Shape lse{out[0], out[1], out[2]};
  check(given.dlse.shape() == lse, call.where, ": dlse has shape ", given.dlse.shape(),
        ", expected ", lse);
  check_memory(call.where, "dlse", given.dlse);
}

/// What strict attention would have to add in the order of one machine, but adds in that of ranks.
void check_strict(const RankCall& call) {
  if (!call.exchange.options.strict || call.communicator.size() == 1) return;
  const auto refuse = [&](bool given, const char* what) {
    check(!given, call.where, ": the gradient of ", what,
          " is a sum over ranks, expected an exchange that is not strict, or none of them");
  };
  refuse(call.how.bias.keys.has_value(), "relative keys");
  refuse(!call.how.relative_values.empty(), "relative values");
  if (!wants_dense_gradient(call.how)) return;
  const View& dense = call.how.bias.dense->values;
  refuse(dense.size(2) == 1 || dense.size(3) == 1,
         "a dense bias that is repeated over queries or keys (DenseBias::fixed leaves it out)");
}

bool sends(const TileTransfer& transfer) { return !transfer.out.empty(); }

Gradients run(const RankCall& call, const OutputGradients& given, const AttendedView& attended) {
  const RankParts& parts = call.exchange.parts(call.rank());
  const bool strict = call.exchange.options.strict;
  Request whole = call.whole_request();
  const BackwardRoute& route = backward_route_of(whole, given.dout);

  const Attention how = how_of_part(call.how, parts.own);
  const Call own_call(call.part_request(parts.own, how), parts.own.tiles);
  const BackwardTask task{own_call, given.dout, unrounded(call.where, attended), attended.rows,
                          given.dlse};
  const BackwardInput input(task, route.denominators);
  const OwnQueries own{given.dout, input};

  RankGradients gradients{{call.q, !strict && sends(parts.backward.queries)},
                          {call.k, !strict && sends(parts.backward.keys)},
                          {call.v, !strict && sends(parts.backward.keys)},
                          {}};
  clear_unseeing(own_call, gradients.dq.own());
  if (strict) BackwardPart(call, parts.own, Wanted::queries, route, own).run(gradients);
  if (wants_dense_gradient(call.how))
    gradients.ddense = Tensor(call.how.bias.dense->values.shape());
  BackwardPart last(call, parts.backward, strict ? Wanted::keys : Wanted::all, route, own);
  last.run(gradients);

  Gradients all = score_gradients(call, last, input);
  all.dq = gradients.dq.finish();
  all.dk = gradients.dk.finish();
  all.dv = gradients.dv.finish();
  if (!gradients.ddense.empty()) {
    all_reduce_sum(call.communicator, gradients.ddense.numbers());
    all.ddense = std::move(gradients.ddense);
  }
  return all;
}

}  // namespace

Gradients attend_backward(Communicator& communicator, const Exchange& exchange,
                          const OutputGradients& gradients, AnyView q, AnyView k, AnyView v,
                          const AttendedView& attended, const Attention& how,
                          const Context& context) {
  const FlushDenormals guard;
  const RankCall call("distributed attend_backward", communicator, exchange, q, k, v, how, context);
  check_backward(call, gradients, attended);
  check_strict(call);
  if (call.exchange.hashed) {
    check(gradients.dlse.empty(), call.where,
          ": a gradient of lse is given, expected none under lsh");
    return attend_lsh_backward_over_ranks(call, gradients.dout, attended);
  }
  return run(call, gradients, attended);
}

}  // namespace rapt::distributed
