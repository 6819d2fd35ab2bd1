#pragma once

#include <sstream>
#include <stdexcept>

#include "base/check.h"

namespace rapt::detail {

/// For what the outside world gets wrong: std::runtime_error made of the parts, which say where
/// (path, offset or key), what was found and what was expected.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail_input(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw std::runtime_error(message.str());
}

template <class... Parts>
void check_input(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail_input(parts...);
}

}  // namespace rapt::detail
