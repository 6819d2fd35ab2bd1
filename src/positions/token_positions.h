#pragma once

#include "rapt/positions.h"

namespace rapt::detail {

/// The positions of the tokens of one call, checked.
class TokenPositions {
 public:
  /// Throws std::invalid_argument if there are too few or too many numbers, or one beyond
  /// `furthest`; `where` opens the message. Borrows what `positions` borrows.
  TokenPositions(const char* where, const Positions& positions, TokenGrid grid);

  /// Angles in f64 mean something up to here: 2^-13 radians of error.
  static constexpr Index furthest = Index{1} << 40;

  Index axes() const { return axes_; }
  Index at(Index item, Index token, Index axis = 0) const {
    const Index place = axis * axis_stride_ + item * item_stride_ + token * token_stride_;
    return (numbers_ == nullptr ? first_ : numbers_[place]) + token * step_;
  }
  /// Over all tokens and axes; 0 if there are none.
  Index lowest() const { return lowest_; }
  Index highest() const { return highest_; }

 private:
  void take_numbers(const char* where, const Positions& positions, TokenGrid grid);

  const Index* numbers_ = nullptr;
  Index first_ = 0;
  Index axis_stride_ = 0, item_stride_ = 0, token_stride_ = 0;
  Index step_ = 0;  // 1 where positions count on by themselves
  Index axes_ = 1;
  Index lowest_ = 0, highest_ = 0;
};

}  // namespace rapt::detail
