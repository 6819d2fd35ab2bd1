#pragma once

#include "rapt/attention.h"
#include "rapt/distributed/communicator.h"
#include "rapt/distributed/exchange.h"

namespace rapt::distributed {

/// rapt::attend over the tokens of all ranks; every rank calls it with its own tokens, as
/// `exchange` places them, and gets their results.
///
/// q [batch, heads, own queries, dim], k and v [batch, kv_heads, own keys, dim]. Positions, biases,
/// dropout and statistics are those of the whole sequence. A dense bias is given whole on every
/// rank. If the exchange is strict, out, lse and rows have the bits of one machine with
/// Attention::strict.
RAPT_API Attended attend(Communicator& communicator, const Exchange& exchange, AnyView q, AnyView k,
                         AnyView v, const Attention& how = {}, const Context& context = {});

/// Gradients of the sum over all ranks of sum(dout * out) + sum(dlse * lse). dq, dk and dv are
/// those of this rank's tokens; gradients of learnable parts of the score are summed over all
/// ranks, and every rank has them.
RAPT_API Gradients attend_backward(Communicator& communicator, const Exchange& exchange,
                                   const OutputGradients& gradients, AnyView q, AnyView k,
                                   AnyView v, const AttendedView& attended,
                                   const Attention& how = {}, const Context& context = {});

}  // namespace rapt::distributed
