#pragma once

#include <sstream>
#include <stdexcept>

#include "rapt/tensor.h"

namespace rapt::detail {

/// Shapes in messages: text is made only if there is one.
inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << to_string(shape);
}

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

/// The border between the caller's mistakes and our code: throws std::invalid_argument made of the
/// parts unless `ok`. The message says where, what was given and what was expected.
template <class... Parts>
void check(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(parts...);
}

}  // namespace rapt::detail
