#pragma once

namespace rapt::detail {

/// Name of the route that computed last on this thread, written where it computes. Tests compare it
/// with what `explain` says.
inline thread_local const char* last_route = nullptr;

inline void note_route(const char* name) { last_route = name; }

}  // namespace rapt::detail
