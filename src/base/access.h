#pragma once

#include <utility>

#include "rapt/api.h"

namespace rapt::detail {

/// Reaches the private half of public classes, so that their headers show none of it.
struct Access {
  template <class T>
  static auto& impl(T& object) {
    return *object.impl_;
  }
  template <class T>
  static const auto& node(const T& pattern) {
    return pattern.node_;
  }
  template <class T>
  static auto& groups(T& communicator) {
    return communicator.groups_;
  }
  template <class T, class... Arguments>
  static T make(Arguments&&... arguments) {
    return T(std::forward<Arguments>(arguments)...);
  }
};

/// What a public object keeps to itself.
template <class T>
auto& impl_of(T&& object) {
  return Access::impl(object);
}

}  // namespace rapt::detail
