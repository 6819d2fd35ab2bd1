#pragma once

#include "distributed/attention/rank_call.h"

namespace rapt::detail {

// Hashed attention over ranks: whole heads travel, and each is sorted and computed where it
// arrives, with the bits of one machine.

Attended attend_lsh_over_ranks(const RankCall& call);
Gradients attend_lsh_backward_over_ranks(const RankCall& call, const AnyView& dout,
                                         const AttendedView& attended);

}  // namespace rapt::detail
