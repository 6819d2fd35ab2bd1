#pragma once

#include <optional>
#include <vector>

#include "rapt/enum_names.h"

namespace rapt::detail {

/// Each name alone.
std::vector<std::string_view> split_names(const EnumNames& names);

/// None if no value is called so.
std::optional<int> find_enum_value(const EnumNames& names, std::string_view name);

/// "f32, bf16 or int8"
std::string enum_choices(const EnumNames& names);

}  // namespace rapt::detail
