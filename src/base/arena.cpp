#include "base/arena.h"

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/task_arena.h>

#include <pthread.h>

#include <latch>
#include <optional>
#include <vector>

#include "base/system_call.h"

namespace rapt {
namespace {

/// The stack that TBB gives a thread. Those of threads that have ended wait in the C library for
/// the next ones that ask for no more.
constexpr std::size_t stack_bytes = std::size_t{4} << 20;

void* wait_for_all(void* latch) {
  static_cast<std::latch*>(latch)->wait();
  return nullptr;
}

/// How many of so many threads can be had at a time. Throws std::system_error if none can.
///
/// TBB starts threads from within others, where nobody can catch what it throws if there is no
/// memory for one more: the process ends. So they are all started here once before, and leave
/// their stacks to those of TBB.
int startable_threads(int count) {
  std::vector<pthread_t> threads;
  threads.reserve(static_cast<std::size_t>(count));
  std::latch all_started(1);
  pthread_attr_t stack;
  int reason = pthread_attr_init(&stack);
  if (reason != 0) fail_system(reason, "threads: one cannot be described");
  pthread_attr_setstacksize(&stack, stack_bytes);
  for (int i = 0; i < count && reason == 0; ++i) {
    pthread_t thread{};
    reason = pthread_create(&thread, &stack, wait_for_all, &all_started);
    if (reason == 0) threads.push_back(thread);
  }
  pthread_attr_destroy(&stack);
  all_started.count_down();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  if (threads.empty()) fail_system(reason, "threads: none can start");
  return static_cast<int>(threads.size());
}

}  // namespace

struct Arena::Body {
  // TBB starts no more threads than there are CPUs unless it is told to.
  std::optional<tbb::global_control> limit;
  tbb::task_arena arena;
};

Arena::Arena(int helpers)
    : helpers_(startable_threads(helpers)), body_(new Body{{}, tbb::task_arena(helpers_, 0)}) {
  if (helpers_ >= tbb::info::default_concurrency())
    body_->limit.emplace(tbb::global_control::max_allowed_parallelism,
                         static_cast<std::size_t>(helpers_) + 1);
  // Not at the first enqueue: if that fails half way, for lack of memory, TBB takes the arena for
  // one that another thread is about to finish, and every later call waits for it for ever.
  body_->arena.initialize();
}

Arena::~Arena() = default;

void Arena::enqueue(void (*run)(void*), void* argument) {
  body_->arena.enqueue([run, argument] { run(argument); });
}

}  // namespace rapt
