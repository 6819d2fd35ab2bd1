#pragma once

#include <cerrno>
#include <sstream>
#include <system_error>

namespace rapt::detail {

/// Throws std::system_error: the parts, then the system's reason.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail_system(int reason, const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw std::system_error(reason, std::generic_category(), message.str());
}

/// Calls again while a signal came in between.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace rapt::detail
