#include "rapt/type.h"

namespace rapt {
using namespace detail;
namespace {

constexpr std::uint32_t sign_bit = 0x80000000;

/// |x| as half precision. Integers only: the caller may have denormals flushed.
std::uint16_t half_bits(std::uint32_t x) {
  if (x > 0x7F800000) return 0x7E00;   // NaN
  if (x >= 0x477FF000) return 0x7C00;  // rounds past the largest
  const auto exponent = static_cast<int>(x >> 23) - 127;
  if (exponent < -25) return 0;
  const std::uint32_t mantissa = (x & 0x7FFFFF) | 0x800000;
  // Below 2^-14 the result counts units of 2^-24.
  const int shift = exponent >= -14 ? 13 : -1 - exponent;
  const std::uint32_t half = std::uint32_t{1} << (shift - 1);
  const std::uint32_t rounded = (mantissa + half - 1 + (mantissa >> shift & 1)) >> shift;
  // The mantissa's leading bit and a carry both count into the exponent.
  const std::uint32_t base = exponent >= -14 ? static_cast<std::uint32_t>(exponent + 14) << 10 : 0;
  return static_cast<std::uint16_t>(base + rounded);
}

}  // namespace

F16::F16(float x) {
  const auto all = std::bit_cast<std::uint32_t>(x);
  bits = static_cast<std::uint16_t>((all & sign_bit) >> 16 | half_bits(all & ~sign_bit));
}

F16::operator float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t size = bits & 0x7FFF;
  if (size >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | (size & 0x3FF) << 13);
  if (size >= 0x400) return std::bit_cast<float>(sign | ((size << 13) + (112u << 23)));
  const float small = static_cast<float>(size) * 0x1p-24f;
  return sign != 0 ? -small : small;
}

}  // namespace rapt
