#pragma once

#include <span>
#include <string>

#include "attention/call.h"
#include "attention/decode/stored_keys.h"
#include "attention/dispatch.h"

namespace rapt::detail {

/// One batch item of a call, and the keys it reads.
struct DecodeItem {
  const Call& call;
  Index item;  // of the call
  const StoredKeys& keys;
  ForwardOutput output;
};

/// Calls that read less than this are done before another thread has woken up.
inline constexpr Index bytes_worth_threads = Index{256} << 10;

/// Numbers from one row of sums to the next.
inline Index decode_width(const Call& call) { return round_up(call.value_dim, call.kernels.lanes); }

/// All query heads of a key head together, keys split over threads and never packed. Keys are split
/// by how many are visited and the parts joined in order, so the bits do not depend on the threads.
void run_decode(std::span<const Job> jobs);
std::string describe_decode(const Request& request);

}  // namespace rapt::detail
