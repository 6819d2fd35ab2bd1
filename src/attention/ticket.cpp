#include "attention/ticket.h"

#include <algorithm>
#include <thread>

namespace rapt {
namespace {

/// How many groups before `key_group` visit the query tile.
Index rank(const Plan& plan, Index query_tile, Index key_group, Index group_tiles) {
  Index count = 0;
  Index next = 0;  // groups below are counted
  for (const Visit& visit : plan.visits(query_tile)) {
    const Index first = std::max(next, visit.first / group_tiles);
    const Index last = std::min(key_group - 1, (visit.first + visit.count - 1) / group_tiles);
    if (first > last) continue;
    count += last - first + 1;
    next = last + 1;
  }
  return count;
}

}  // namespace

QuerySums::QuerySums(const Call& call)
    : tiles_(call.query_tiles()),
      width_(call.padded(call.dim)),
      sums_(checked_product({call.batch, call.heads, tiles_, tile, width_})),
      done_(new std::atomic<std::int32_t>[static_cast<std::size_t>(call.batch * call.heads *
                                                                   tiles_)]()) {
  const Index owners = call.batch * call.heads;
  for_each_task(call.context, owners * tiles_, [&](Index task, Index) {
    double* from = sums_.data() + task * tile * width_;
    std::fill(from, from + tile * width_, 0.0);
  });
}

void QuerySums::enter(const Plan& plan, Index owner, Index query_tile, Index key_group,
                      Index group_tiles) {
  const auto turn = static_cast<std::int32_t>(rank(plan, query_tile, key_group, group_tiles));
  const std::atomic<std::int32_t>& done = done_[static_cast<std::size_t>(place(owner, query_tile))];
  while (done.load(std::memory_order_acquire) != turn) {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
    std::this_thread::yield();
  }
}

void QuerySums::give_up(std::exception_ptr why) {
  std::call_once(failing_, [&] {
    failure_ = std::move(why);
    failed_.store(true, std::memory_order_release);
  });
}

void QuerySums::leave(Index owner, Index query_tile) {
  done_[static_cast<std::size_t>(place(owner, query_tile))].fetch_add(1, std::memory_order_release);
}

}  // namespace rapt
