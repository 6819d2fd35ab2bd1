#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "rapt/enum_names.h"

namespace rapt::detail {

/// How many values an enum of the public headers has.
template <NamedEnum Enum>
inline constexpr int enum_count = 1 +
                                  static_cast<int>(std::count(enum_names<Enum>.values.begin(),
                                                              enum_names<Enum>.values.end(), ','));

/// One T for each value of an enum.
template <NamedEnum Enum, class T>
class EnumArray {
 public:
  /// In the order of the enum, none left out.
  template <class... Each>
  constexpr EnumArray(const Each&... each) : all_{each...} {
    static_assert(sizeof...(Each) == enum_count<Enum>);
  }
  constexpr const T& operator[](Enum value) const { return all_[static_cast<std::size_t>(value)]; }
  constexpr T& operator[](Enum value) { return all_[static_cast<std::size_t>(value)]; }

 private:
  std::array<T, enum_count<Enum>> all_;
};

}  // namespace rapt::detail
