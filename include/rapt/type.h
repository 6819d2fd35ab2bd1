#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "rapt/enum_names.h"

namespace rapt {

/// What a number in memory is.
enum class Type : std::uint8_t { f32, bf16, f16 };

/// Bytes of one number.
constexpr std::size_t size_of(Type type) { return type == Type::f32 ? 4 : 2; }
template <>
inline constexpr EnumNames enum_names<Type>{"type", "f32, bf16, f16"};

/// bfloat16: the upper half of an f32.
struct Bf16 {
  std::uint16_t bits = 0;

  Bf16() = default;
  /// To nearest, ties to even; NaN stays NaN.
  explicit constexpr Bf16(float x) : bits(rounded(std::bit_cast<std::uint32_t>(x))) {}
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  bool operator==(const Bf16&) const = default;

 private:
  static constexpr std::uint16_t rounded(std::uint32_t x) {
    const bool nan = (x & 0x7FFFFFFF) > 0x7F800000;
    return static_cast<std::uint16_t>(nan ? (x >> 16) | 0x40 : (x + 0x7FFF + (x >> 16 & 1)) >> 16);
  }
};

/// IEEE half precision.
struct RAPT_API F16 {
  std::uint16_t bits = 0;

  F16() = default;
  /// To nearest, ties to even; what is too large becomes infinite, NaN stays NaN.
  explicit F16(float x);
  explicit operator float() const;
  bool operator==(const F16&) const = default;
};

template <class T>
inline constexpr bool is_number = false;
template <>
inline constexpr bool is_number<float> = true;
template <>
inline constexpr bool is_number<Bf16> = true;
template <>
inline constexpr bool is_number<F16> = true;

template <class T>
concept Number = is_number<T>;

template <Number T>
inline constexpr Type type_of = Type::f32;
template <>
inline constexpr Type type_of<Bf16> = Type::bf16;
template <>
inline constexpr Type type_of<F16> = Type::f16;

}  // namespace rapt
