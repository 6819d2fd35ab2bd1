#pragma once

#include "base/enum_names.h"
#include "rapt/type.h"

namespace rapt::detail {

template <>
struct EnumNames<Type> {
  static constexpr const char* what = "type";
  static constexpr std::string_view names[] = {"f32", "bf16", "f16"};
};

}  // namespace rapt::detail
