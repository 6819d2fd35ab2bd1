#pragma once

#include "base/enum_names.h"
#include "rapt/nn.h"

namespace rapt::detail {

template <>
struct EnumNames<Activation> {
  static constexpr const char* what = "activation";
  static constexpr std::string_view names[] = {"relu", "gelu", "gelu_tanh", "silu"};
};

}  // namespace rapt::detail
