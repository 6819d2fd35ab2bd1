#pragma once

#include "rapt/distributed/communicator.h"

namespace rapt::distributed {

// Tags come in spaces of Communicator::tags: the first is the caller's, the last belongs to the
// collective operations, and those between to groups, which take them in turn. All groups share the
// collective tags: two ranks make the collective calls that concern both in the same order.

constexpr Index group_spaces = Communicator::transport_tags / Communicator::tags - 2;
constexpr Index first_collective_tag = Communicator::transport_tags - Communicator::tags;

enum class Collective : Index { barrier, broadcast, all_gather, all_to_all, all_reduce_sum };

constexpr Index tag_of(Collective collective) {
  return first_collective_tag + static_cast<Index>(collective);
}

inline const char* collective_name(Index tag) {
  switch (static_cast<Collective>(tag - first_collective_tag)) {
    case Collective::barrier:
      return "barrier";
    case Collective::broadcast:
      return "broadcast";
    case Collective::all_gather:
      return "all_gather";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::all_reduce_sum:
      return "all_reduce_sum";
  }
  return "collective";
}

}  // namespace rapt::distributed
