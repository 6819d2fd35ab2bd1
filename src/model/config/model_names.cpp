#include "model/config/model_names.h"

namespace rapt {
using namespace detail;

std::string to_string(ModelConfig::Kind kind) { return enum_name(kind); }
template <>
ModelConfig::Kind from_string<ModelConfig::Kind>(std::string_view name) {
  return enum_value<ModelConfig::Kind>(name);
}

std::string to_string(ModelConfig::Norm norm) { return enum_name(norm); }
template <>
ModelConfig::Norm from_string<ModelConfig::Norm>(std::string_view name) {
  return enum_value<ModelConfig::Norm>(name);
}

std::string to_string(ModelConfig::NormPosition position) { return enum_name(position); }
template <>
ModelConfig::NormPosition from_string<ModelConfig::NormPosition>(std::string_view name) {
  return enum_value<ModelConfig::NormPosition>(name);
}

std::string to_string(ModelConfig::Positions positions) { return enum_name(positions); }
template <>
ModelConfig::Positions from_string<ModelConfig::Positions>(std::string_view name) {
  return enum_value<ModelConfig::Positions>(name);
}

std::string to_string(ModelConfig::Biases biases) { return enum_name(biases); }
template <>
ModelConfig::Biases from_string<ModelConfig::Biases>(std::string_view name) {
  return enum_value<ModelConfig::Biases>(name);
}

std::string to_string(ModelConfig::SharedKeys shared) { return enum_name(shared); }
template <>
ModelConfig::SharedKeys from_string<ModelConfig::SharedKeys>(std::string_view name) {
  return enum_value<ModelConfig::SharedKeys>(name);
}

}  // namespace rapt
