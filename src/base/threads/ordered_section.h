#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>

#include "rapt/tensor.h"

namespace rapt {

/// Fixes the order in which tasks add to shared sums, so that the bits do not depend on the number
/// of threads: whoever enters a place waits until all earlier turns at it have left.
///
/// It cannot deadlock if tasks start in ascending order and wait only for tasks before them.
class Turns {
 public:
  explicit Turns(Index places)
      : done_(new std::atomic<Index>[static_cast<std::size_t>(places)]()) {}

  void enter(Index place, Index turn);
  void leave(Index place);
  /// A task ended in an exception and will never leave: whoever waits gets one too, instead of
  /// waiting forever.
  void give_up(std::exception_ptr why);

 private:
  std::unique_ptr<std::atomic<Index>[]> done_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::once_flag failing_;
};

}  // namespace rapt
