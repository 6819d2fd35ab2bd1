#pragma once

#include "attention/dispatch.h"
#include "attention/forward/packed_keys.h"
#include "attention/lsh/lsh_rounds.h"

namespace rapt {

/// Query tiles that one task takes past the keys side by side. Sorted slots pack their keys for
/// each task, so there longer tasks pack less twice.
inline constexpr Index most_forward_group = 8;
inline Index forward_group(const Call& call) {
  return call.slots == nullptr ? 4 : most_forward_group;
}

void run_bf16_tiles(std::span<const Job> jobs);
void run_f32_tiles(std::span<const Job> jobs);
std::string describe_tiles(const Request& request);

/// Tiles of keys and values from any source; the call's own k and v may be only shapes.
void run_forward(const Call& call, KeySource& keys, const ForwardOutput& output);

}  // namespace rapt
