#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "base/check.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// Product of sizes; throws std::invalid_argument if it does not fit 64 bits.
inline Index checked_product(std::initializer_list<Index> factors) {
  Index product = 1;
  for (const Index factor : factors)
    check(!__builtin_mul_overflow(product, factor, &product),
          "size overflow: a product with factor ", factor, " does not fit 64 bits");
  return product;
}

/// Sum of sizes; throws std::invalid_argument if it does not fit 64 bits.
inline Index checked_sum(std::initializer_list<Index> terms) {
  Index sum = 0;
  for (const Index term : terms)
    check(!__builtin_add_overflow(sum, term, &sum), "size overflow: a sum with term ", term,
          " does not fit 64 bits");
  return sum;
}

/// A size for the standard library, which counts without a sign.
constexpr std::size_t to_size(std::integral auto size) {
  assert(std::in_range<std::size_t>(size));
  return static_cast<std::size_t>(size);
}

/// Towards -infinity; part is positive.
inline constexpr Index divide_down(Index number, Index part) {
  return number / part - (number % part < 0 ? 1 : 0);
}
inline constexpr Index divide_up(Index size, Index part) { return (size + part - 1) / part; }
inline constexpr Index round_up(Index size, Index part) { return divide_up(size, part) * part; }

}  // namespace rapt::detail
