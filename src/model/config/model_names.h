#pragma once

#include "base/enum_names.h"
#include "rapt/model.h"

namespace rapt::detail {

template <>
struct EnumNames<ModelConfig::Kind> {
  static constexpr const char* what = "kind of model";
  static constexpr std::string_view names[] = {"decoder", "encoder", "encoder_decoder"};
};
template <>
struct EnumNames<ModelConfig::Norm> {
  static constexpr const char* what = "norm";
  static constexpr std::string_view names[] = {"layer", "rms"};
};
template <>
struct EnumNames<ModelConfig::NormPosition> {
  static constexpr const char* what = "norm position";
  static constexpr std::string_view names[] = {"pre", "post"};
};
template <>
struct EnumNames<ModelConfig::Positions> {
  static constexpr const char* what = "positions";
  static constexpr std::string_view names[] = {"none",  "learned", "sinusoidal", "rope",
                                               "alibi", "t5",      "axial"};
};
template <>
struct EnumNames<ModelConfig::Biases> {
  static constexpr const char* what = "biases";
  static constexpr std::string_view names[] = {"none", "all", "qkv", "attention", "ffn"};
};
template <>
struct EnumNames<ModelConfig::SharedKeys> {
  static constexpr const char* what = "shared keys";
  static constexpr std::string_view names[] = {"never", "always", "hashed"};
};

}  // namespace rapt::detail
