#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>

#include "attention/call.h"

namespace rapt {

/// Sums of dlogit * k over all keys, in f64, for every query: the one output of backward that
/// several tasks add to.
///
/// Key groups add to a query tile in ascending order: each visit has a rank and waits until the
/// ranks before it are done. That fixes the order of the additions, so the bits do not depend on
/// the number of threads. It cannot deadlock: tasks start in ascending order of their groups, and a
/// task waits only for groups before its own.
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
  /// Returns when all groups that visit the query tile before `key_group` have left.
  void enter(const Plan& plan, Index owner, Index query_tile, Index key_group, Index group_tiles);
  void leave(Index owner, Index query_tile);
  /// A task ended in an exception and will never leave: whoever waits gets one too, instead of
  /// waiting forever.
  void give_up(std::exception_ptr why);

 private:
  Index place(Index owner, Index query_tile) const { return owner * tiles_ + query_tile; }

  Index tiles_, width_;
  Buffer<double> sums_;
  std::unique_ptr<std::atomic<std::int32_t>[]> done_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::once_flag failing_;
};

}  // namespace rapt
