#include "base/threads/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/io/system_call.h"
#include "base/sizes.h"

namespace rapt::detail {
namespace {

constexpr std::size_t stack_bytes = std::size_t{4} << 20;

/// How long a helper spins, and how long a caller does for the last helper: loops of a model are
/// some tens of microseconds apart.
constexpr std::chrono::microseconds patience(200);

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Asks again and again; false if `ready` did not come true in time.
template <class Ready>
bool spin_until(const Ready& ready, ThreadPool::Wait wait) {
  const bool yields = wait == ThreadPool::Wait::yield;
  const int asked_between_clocks = yields ? 1 : 64;
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    for (int i = 0; i < asked_between_clocks; ++i) {
      if (ready()) return true;
      if (yields)
        sched_yield();
      else
        pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

/// How often this process has come out of fork() since the first pool.
std::atomic<int> forks = 0;

int count_forks() {
  static const bool counting = [] {
    const int reason = pthread_atfork(nullptr, nullptr, [] { ++forks; });
    if (reason != 0) fail_system(reason, "threads: fork() cannot be watched");
    return true;
  }();
  return counting ? forks.load() : 0;
}

}  // namespace

ThreadPool::ThreadPool(Index helpers, Wait wait) : wait_(wait), forks_(count_forks()) {
  threads_.reserve(to_size(helpers));
  pthread_attr_t attributes;
  int reason = pthread_attr_init(&attributes);
  if (reason != 0) fail_system(reason, "threads: the stack size cannot be set");
  pthread_attr_setstacksize(&attributes, stack_bytes);
  while (reason == 0 && std::ssize(threads_) < helpers) {
    pthread_t thread{};
    reason = pthread_create(&thread, &attributes, begin, this);
    if (reason == 0) threads_.push_back(thread);
  }
  pthread_attr_destroy(&attributes);
  if (reason == 0) return;
  const Index started = std::ssize(threads_);
  stop();
  fail_system(reason, "threads: only ", started + 1, " of ", helpers + 1, " start (ask for fewer, ",
              "or raise the limit on memory or threads)");
}

ThreadPool::~ThreadPool() { stop(); }

bool ThreadPool::alive() const { return forks_ == forks.load(std::memory_order_relaxed); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  offered_.notify_all();
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
}

void ThreadPool::run(TaskLoop& loop, Index helpers) {
  Offer offer{.loop = loop, .wanted = std::min(helpers, this->helpers())};
  publish(offer);
  loop.work(0);
  withdraw(offer);
  loop.rethrow_error();
}

void ThreadPool::publish(Offer& offer) {
  Index sleepers = 0;
  {
    const std::lock_guard lock(mutex_);
    offer.older = newest_;
    newest_ = &offer;
    wanted_ += offer.wanted;
    sleepers = sleepers_to_wake();
  }
  wake(sleepers);
}

/// A thread that publishes or enters a loop wakes a few workers; they wake the others, unless they
/// find that short tasks are done by then. Waking all would keep the caller from its own work.
Index ThreadPool::sleepers_to_wake() const {
  const Index most = wait_ == Wait::yield ? 1 : 2;
  return std::clamp<Index>(wanted_ - spinning_, 0, std::min(asleep_, most));
}

void ThreadPool::wake(Index sleepers) {
  for (; sleepers > 0; --sleepers) offered_.notify_one();
}

void ThreadPool::withdraw(Offer& offer) {
  spin_until([&] { return offer.inside.load(std::memory_order_relaxed) == 0; }, wait_);
  std::unique_lock lock(mutex_);
  wanted_ -= std::exchange(offer.wanted, 0);
  Offer** place = &newest_;
  while (*place != &offer) place = &(*place)->older;
  *place = offer.older;
  left_.wait(lock, [&] { return offer.inside == 0; });
}

void* ThreadPool::begin(void* pool) {
  static_cast<ThreadPool*>(pool)->help();
  return nullptr;
}

void ThreadPool::help() {
  std::unique_lock lock(mutex_);
  while (wait_for_offer(lock)) {
    Offer* const offer = enter_newest();
    if (offer == nullptr) continue;
    const Index worker = offer->entered;
    const Index sleepers = offer->loop.nothing_left() ? 0 : sleepers_to_wake();
    lock.unlock();
    wake(sleepers);
    offer->loop.work(worker);
    lock.lock();
    if (--offer->inside == 0) left_.notify_all();  // the offer ends when the mutex is free
  }
}

/// False if the pool stops.
bool ThreadPool::wait_for_offer(std::unique_lock<std::mutex>& lock) {
  const auto ready = [this] { return wanted_ > 0 || stopping_; };
  if (!ready()) {
    ++spinning_;
    lock.unlock();
    spin_until(ready, wait_);
    lock.lock();
    --spinning_;
  }
  ++asleep_;
  offered_.wait(lock, ready);
  --asleep_;
  return !stopping_;
}

/// Null if all that was offered has been done.
ThreadPool::Offer* ThreadPool::enter_newest() {
  for (Offer* offer = newest_; offer != nullptr; offer = offer->older) {
    if (offer->loop.nothing_left()) wanted_ -= std::exchange(offer->wanted, 0);
    if (offer->wanted == 0) continue;
    --offer->wanted;
    --wanted_;
    ++offer->inside;
    ++offer->entered;
    return offer;
  }
  return nullptr;
}

}  // namespace rapt::detail
