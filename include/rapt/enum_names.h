#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "rapt/api.h"

namespace rapt {

/// What the values of an enum are called, in their order.
struct EnumNames {
  std::string_view what = {};    // what messages call the enum: "cache type"
  std::string_view values = {};  // "f32, bf16, int8"
};

/// The names of an enum. Each enum of these headers specializes it.
template <class Enum>
inline constexpr EnumNames enum_names = {};

template <class Enum>
concept NamedEnum = std::is_enum_v<Enum> && !enum_names<Enum>.values.empty();

namespace detail {
RAPT_API std::string enum_name(const EnumNames& names, int value);
RAPT_API int enum_value(const EnumNames& names, std::string_view name);
}  // namespace detail

/// The name of a value, as C++ spells it: to_string(CacheType::int8) is "int8".
template <NamedEnum Enum>
std::string to_string(Enum value) {
  return detail::enum_name(enum_names<Enum>, static_cast<int>(value));
}

/// The value with this name; hyphens and underscores are equivalent. Throws std::invalid_argument
/// that lists the names.
template <NamedEnum Enum>
Enum from_string(std::string_view name) {
  return static_cast<Enum>(detail::enum_value(enum_names<Enum>, name));
}

}  // namespace rapt
