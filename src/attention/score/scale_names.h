#pragma once

#include "base/enum_names.h"
#include "rapt/attention.h"

namespace rapt::detail {

template <>
struct EnumNames<Scale::Rule> {
  static constexpr const char* what = "scale";
  static constexpr std::string_view names[] = {"inverse_sqrt_dim", "inverse_dim", "value", "log_n"};
};

}  // namespace rapt::detail
