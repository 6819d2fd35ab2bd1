#include "positions/position_names.h"

namespace rapt {
using namespace detail;

std::string to_string(Positions::Kind kind) { return enum_name(kind); }
template <>
Positions::Kind from_string<Positions::Kind>(std::string_view name) {
  return enum_value<Positions::Kind>(name);
}

std::string to_string(CacheRule::Keys keys) { return enum_name(keys); }
template <>
CacheRule::Keys from_string<CacheRule::Keys>(std::string_view name) {
  return enum_value<CacheRule::Keys>(name);
}

std::string to_string(CacheRule::Renumbering renumbering) { return enum_name(renumbering); }
template <>
CacheRule::Renumbering from_string<CacheRule::Renumbering>(std::string_view name) {
  return enum_value<CacheRule::Renumbering>(name);
}

std::string to_string(Sinusoidal::Layout layout) { return enum_name(layout); }
template <>
Sinusoidal::Layout from_string<Sinusoidal::Layout>(std::string_view name) {
  return enum_value<Sinusoidal::Layout>(name);
}

std::string to_string(Sinusoidal::Frequencies frequencies) { return enum_name(frequencies); }
template <>
Sinusoidal::Frequencies from_string<Sinusoidal::Frequencies>(std::string_view name) {
  return enum_value<Sinusoidal::Frequencies>(name);
}

std::string to_string(Axial::Order order) { return enum_name(order); }
template <>
Axial::Order from_string<Axial::Order>(std::string_view name) {
  return enum_value<Axial::Order>(name);
}

std::string to_string(RopeLayout layout) { return enum_name(layout); }
template <>
RopeLayout from_string<RopeLayout>(std::string_view name) {
  return enum_value<RopeLayout>(name);
}

std::string to_string(RopeSections::Order order) { return enum_name(order); }
template <>
RopeSections::Order from_string<RopeSections::Order>(std::string_view name) {
  return enum_value<RopeSections::Order>(name);
}

}  // namespace rapt
