#pragma once

#include "attention/dispatch.h"
#include "attention/forward/packed_keys.h"
#include "attention/lsh/round_sums.h"

namespace rapt::detail {

/// Query tiles that one task takes past the keys together. Sorted tokens pack their keys for each
/// task, so there longer tasks pack less twice.
inline constexpr Index max_forward_group = 8;
inline Index forward_group(const Call& call) {
  return call.sorted_rule == nullptr ? 4 : max_forward_group;
}

void run_bf16_tiles(std::span<const Job> jobs);
void run_f32_tiles(std::span<const Job> jobs);
std::string describe_bf16_tiles(const Request& request);
std::string describe_f32_tiles(const Request& request);

/// A part of a larger call, keys and values from its operands.
template <class T>
void run_part(const Call& part, const ForwardOutput& output);

/// Tiles of keys and values from any source, multiplied as numbers of type T; the call's own k and
/// v may be only shapes. Of a part of a call: the heads that are to be computed now.
template <class T>
void run_forward(const Call& call, KeySource<T>& keys, const ForwardOutput& output);

}  // namespace rapt::detail
