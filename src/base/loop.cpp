#include "base/loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/fpmode.h"

namespace rapt {
namespace {

/// How long a helper looks out, and how long a caller does for the last helper: between loops of a
/// model lie some tens of microseconds.
constexpr std::chrono::microseconds patience(200);

void rest() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Asks again and again; false if `ready` did not come true in time.
template <class Ready>
bool look_out(const Ready& ready) {
  constexpr int asked_between_clocks = 64;
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    for (int i = 0; i < asked_between_clocks; ++i) {
      if (ready()) return true;
      rest();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

Loop::Loop(Index tasks, Index shares, const std::function<void(Index, Index)>& run)
    : shares_(static_cast<std::size_t>(shares)), run_(run) {
  for (Index i = 0; i < shares; ++i) {
    share(i).next = tasks * i / shares;
    share(i).end = tasks * (i + 1) / shares;
  }
}

void Loop::help() {
  if (const std::optional<Index> worker = enter()) {
    work(*worker);
    leave();
  }
}

void Loop::work(Index worker) {
  const FlushDenormals guard;
  try {
    for (Index i = 0; i < std::ssize(shares_); ++i)
      take(share((worker + i) % std::ssize(shares_)), worker);
  } catch (...) {
    for (Share& share : shares_) share.next.store(share.end, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void Loop::close(Wait wait) {
  if (wait == Wait::watching)
    look_out([this] { return inside_.load(std::memory_order_relaxed) == 0; });
  std::unique_lock lock(mutex_);
  closed_ = true;
  nobody_inside_.wait(lock, [this] { return inside_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Loop::take(Share& share, Index worker) {
  for (Index task; (task = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
    run_(task, worker);
}

bool Loop::nothing_left() const {
  return std::ranges::all_of(shares_, [](const Share& share) {
    return share.next.load(std::memory_order_relaxed) >= share.end;
  });
}

std::optional<Index> Loop::enter() {
  const std::lock_guard lock(mutex_);
  if (closed_ || nothing_left()) return std::nullopt;
  ++inside_;
  return ++last_worker_;
}

void Loop::leave() {
  const std::lock_guard lock(mutex_);
  if (--inside_ == 0) nobody_inside_.notify_one();
}

Index Standby::invite(const SharedLoop& loop, Index wanted) {
  const std::lock_guard lock(mutex_);
  const Index invited = std::min(waiting_, wanted);
  invitations_.insert(invitations_.end(), static_cast<std::size_t>(invited), loop);
  waiting_ -= invited;
  invited_ += invited;
  const Index sent = std::min(wanted - invited, most_ - about_);
  about_ += sent;
  return sent;
}

void Standby::excuse(Index helpers) {
  const std::lock_guard lock(mutex_);
  about_ -= helpers;
}

SharedLoop Standby::accepted() {
  const std::lock_guard lock(mutex_);
  if (invitations_.empty()) return nullptr;
  SharedLoop loop = std::move(invitations_.back());
  invitations_.pop_back();
  --invited_;
  return loop;
}

SharedLoop Standby::next() {
  {
    const std::lock_guard lock(mutex_);
    ++waiting_;
  }
  for (;;) {
    const bool called = look_out([this] { return invited_ > 0 || closed_; });
    if (SharedLoop loop = accepted()) return loop;
    if (called && !closed_) continue;  // another helper was quicker
    const std::lock_guard lock(mutex_);
    if (!invitations_.empty()) continue;  // in the last moment
    --waiting_;
    --about_;
    return nullptr;
  }
}

void Standby::close() { closed_ = true; }

}  // namespace rapt
