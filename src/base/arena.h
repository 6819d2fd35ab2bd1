#pragma once

#include <memory>

namespace rapt {

/// Helper threads of oneTBB. All that is known of TBB is in arena.cpp, which the thread sanitizer
/// leaves alone: TBB's library is not instrumented, so its hand-overs would look like races.
class Arena {
 public:
  /// Throws if the system does not give as many threads, or memory for them; a later attempt may
  /// do better.
  explicit Arena(int helpers);
  ~Arena();

  /// Some helper calls run(argument) later, or much later if all are busy.
  void enqueue(void (*run)(void*), void* argument);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace rapt
