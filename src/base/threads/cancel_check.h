#pragma once

#include <functional>

namespace rapt {

/// Called now and then by long work, a few times a second at least; what it throws ends the work.
/// Empty: nobody asks.
using Pause = std::function<void()>;

inline void call(const Pause& pause) {
  if (pause) pause();
}

}  // namespace rapt
