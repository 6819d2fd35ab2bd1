#pragma once

#include "base/enum_names.h"
#include "rapt/rope.h"

namespace rapt::detail {

template <>
struct EnumNames<Positions::Kind> {
  static constexpr const char* what = "positions";
  static constexpr std::string_view names[] = {"counted", "counted_each", "listed", "grid"};
};
template <>
struct EnumNames<CacheRule::Keys> {
  static constexpr const char* what = "cached keys";
  static constexpr std::string_view names[] = {"plain", "rotated", "rotated_if_fixed", "unrotated"};
};
template <>
struct EnumNames<CacheRule::Renumbering> {
  static constexpr const char* what = "renumbering";
  static constexpr std::string_view names[] = {"free", "by_rotation", "by_rotating_again",
                                               "impossible"};
};
template <>
struct EnumNames<Sinusoidal::Layout> {
  static constexpr const char* what = "sinusoidal layout";
  static constexpr std::string_view names[] = {"interleaved", "halves"};
};
template <>
struct EnumNames<Sinusoidal::Frequencies> {
  static constexpr const char* what = "sinusoidal frequencies";
  static constexpr std::string_view names[] = {"exclusive", "inclusive"};
};
template <>
struct EnumNames<Axial::Order> {
  static constexpr const char* what = "axial order";
  static constexpr std::string_view names[] = {"row_major", "column_major"};
};
template <>
struct EnumNames<RopeLayout> {
  static constexpr const char* what = "rope layout";
  static constexpr std::string_view names[] = {"half_split", "interleaved"};
};
template <>
struct EnumNames<RopeSections::Order> {
  static constexpr const char* what = "order of rope sections";
  static constexpr std::string_view names[] = {"blocks", "interleaved", "restarted"};
};

}  // namespace rapt::detail
