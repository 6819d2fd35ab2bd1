#pragma once

#include <memory>

namespace rapt {

/// Helper threads of oneTBB. All that is known of TBB is in arena.cpp, which the thread sanitizer
/// leaves alone: TBB's library is not instrumented, so its hand-overs would look like races.
class Arena {
 public:
  /// With as many helpers as the system gives now, which is what later calls have to do with:
  /// trying again at each would cost more than the helpers are worth. Throws if it gives none, or
  /// no memory for them; a later attempt may do better.
  explicit Arena(int helpers);
  ~Arena();

  int helpers() const { return helpers_; }

  /// Some helper calls run(argument) later, or much later if all are busy.
  void enqueue(void (*run)(void*), void* argument);

 private:
  struct Body;
  int helpers_;
  std::unique_ptr<Body> body_;
};

}  // namespace rapt
