#pragma once

#include <nanobind/nanobind.h>

#include <sstream>

namespace rapt::python {

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  return message.str();
}

/// Throws ValueError with a message made of the parts.
template <class... Parts>
[[noreturn]] void wrong_value(const Parts&... parts) {
  throw nanobind::value_error(joined(parts...).c_str());
}

/// Throws TypeError.
template <class... Parts>
[[noreturn]] void wrong_type(const Parts&... parts) {
  throw nanobind::type_error(joined(parts...).c_str());
}

}  // namespace rapt::python
