#pragma once

#include "attention/relative_band.h"
#include "attention/turns.h"

namespace rapt {

/// Sums of dlogit * k over all keys, in f64, for every query: the one output of backward that
/// several tasks add to.
///
/// Key groups add to a query tile in ascending order.
class QuerySums {
 public:
  explicit QuerySums(const Call& call);

  Index width() const { return width_; }
  double* rows(Index owner, Index query_tile) {
    return sums_.data() + place(owner, query_tile) * tile * width_;
  }
  const double* rows(Index owner, Index query_tile) const {
    return sums_.data() + place(owner, query_tile) * tile * width_;
  }
  /// Returns when all groups that visit the query tile before `key_group` have left; true if there
  /// was none, and the sums hold nothing yet.
  bool enter(const Plan& plan, Index owner, Index query_tile, Index key_group, Index group_tiles);
  void leave(Index owner, Index query_tile);
  void give_up(std::exception_ptr why) { turns_.give_up(std::move(why)); }

 private:
  Index place(Index owner, Index query_tile) const { return owner * tiles_ + query_tile; }

  Index tiles_, width_;
  Buffer<double> sums_;
  Turns turns_;
};

/// The gradient of a table of relative keys or values, in f64. Tasks add in their order.
class RelativeSums {
 public:
  /// `table` is null if there is none.
  explicit RelativeSums(const RelativeTiles* table);

  void add(Index task, const RelativeGradient& part);
  void give_up(std::exception_ptr why) { turns_.give_up(std::move(why)); }
  /// Times a factor.
  void write(double factor, Tensor& gradient) const;

 private:
  const RelativeTiles* table_;
  Buffer<double> sums_;
  Turns turns_;
};

}  // namespace rapt
