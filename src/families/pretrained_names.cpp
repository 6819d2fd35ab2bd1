#include "base/enum_names.h"
#include "rapt/pretrained.h"

namespace rapt {
using namespace detail;

template <>
struct detail::EnumNames<WeightType> {
  static constexpr const char* what = "weight_type";
  static constexpr std::string_view names[] = {"stored", "f32",  "bf16", "f16",
                                               "q8_0",   "q4_0", "q4_1"};
};
std::string to_string(WeightType type) { return enum_name(type); }
template <>
WeightType from_string<WeightType>(std::string_view name) {
  return enum_value<WeightType>(name);
}

template <>
struct detail::EnumNames<Pooling::Kind> {
  static constexpr const char* what = "pooling kind";
  static constexpr std::string_view names[] = {"mean", "cls"};
};
std::string to_string(Pooling::Kind kind) { return enum_name(kind); }
template <>
Pooling::Kind from_string<Pooling::Kind>(std::string_view name) {
  return enum_value<Pooling::Kind>(name);
}

template <>
struct detail::EnumNames<Dense::Activation> {
  static constexpr const char* what = "dense activation";
  static constexpr std::string_view names[] = {"identity", "tanh"};
};
std::string to_string(Dense::Activation activation) { return enum_name(activation); }
template <>
Dense::Activation from_string<Dense::Activation>(std::string_view name) {
  return enum_value<Dense::Activation>(name);
}

}  // namespace rapt
