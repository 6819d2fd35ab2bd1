#pragma once

#include <functional>

namespace rapt::detail {

/// Long work calls it a few times a second at least; what it throws ends the work. Empty: the work
/// cannot be cancelled.
using CancelCheck = std::function<void()>;

inline void check_cancelled(const CancelCheck& cancel_check) {
  if (cancel_check) cancel_check();
}

}  // namespace rapt::detail
