#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"

namespace rapt::detail {

/// What the values of an enum are called, in their order. A specialization has
///   static constexpr const char* what = "cache type";  // what messages call the enum
///   static constexpr std::string_view names[] = {"f32", "bf16", "int8"};
template <class Enum>
struct EnumNames;

template <class Enum>
std::string enum_name(Enum value) {
  return std::string(EnumNames<Enum>::names[static_cast<std::size_t>(value)]);
}

/// "f32, bf16 or int8"
template <class Enum>
std::string enum_choices() {
  std::string text;
  const std::size_t count = std::size(EnumNames<Enum>::names);
  for (std::size_t i = 0; i < count; ++i) {
    text += i == 0 ? "" : i + 1 < count ? ", " : " or ";
    text += EnumNames<Enum>::names[i];
  }
  return text;
}

/// Names are C++ identifiers; on a command line a hyphen is as good as an underscore.
inline bool same_name(std::string_view a, std::string_view b) {
  const auto letter = [](char c) { return c == '-' ? '_' : c; };
  return std::ranges::equal(a, b, {}, letter, letter);
}

/// The end of the list if no value is called so.
template <class Enum>
auto find_enum(std::string_view name) {
  return std::ranges::find_if(EnumNames<Enum>::names,
                              [&](std::string_view each) { return same_name(each, name); });
}

/// Throws std::invalid_argument with the names there are.
template <class Enum>
Enum enum_value(std::string_view name) {
  const auto found = find_enum<Enum>(name);
  check(found != std::end(EnumNames<Enum>::names), EnumNames<Enum>::what, ": \"", name,
        "\" given, expected ", enum_choices<Enum>());
  return static_cast<Enum>(found - std::begin(EnumNames<Enum>::names));
}

}  // namespace rapt::detail
