#pragma once

#include "base/random.h"
#include "base/sizes.h"

namespace rapt::detail {

/// Stretches of equal length, side by side in a range of places. Every epoch takes each of them
/// once in an order of its own, and begins at one of the places that are left over, so that no
/// token is never used.
class Windows {
 public:
  struct Visit {
    Index epoch;
    Index window;
    Index first;  // its first place
  };

  /// Windows of `tokens` places in begin..end - 1, each followed by `beyond` places more that it
  /// looks at too.
  Windows(Index begin, Index end, Index tokens, Index beyond)
      : begin_(begin),
        tokens_(tokens),
        count_(end - begin > beyond ? (end - begin - beyond) / tokens : 0),
        spare_(end - begin - beyond - count_ * tokens) {}

  Index count() const { return count_; }
  /// First place of a window, in order.
  Index first(Index window) const { return begin_ + window * tokens_; }
  /// The window that is taken after `number` others.
  Visit visit(Index number, std::uint64_t seed) const {
    const Index epoch = number / count_;
    const std::uint64_t bits = random_bits(seed, {epoch});
    const Index window = RandomOrder(count_, bits)[number % count_];
    return {epoch, window, first(window) + random_below(scrambled(bits), spare_ + 1)};
  }

 private:
  Index begin_;
  Index tokens_;
  Index count_;
  Index spare_;
};

}  // namespace rapt::detail
