#pragma once

#include "rapt/enum_names.h"

namespace rapt {

/// How a cache stores its numbers: as they are, as bf16, or as 8-bit integers with one scale for
/// each key and each value (of a token and head).
enum class CacheType { f32, bf16, int8 };
template <>
inline constexpr EnumNames enum_names<CacheType>{"cache type", "f32, bf16, int8"};

}  // namespace rapt
