#include "base/arena.h"

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/task_arena.h>

#include <optional>

namespace rapt {

struct Arena::Body {
  // TBB starts no more threads than there are CPUs unless it is told to.
  std::optional<tbb::global_control> limit;
  tbb::task_arena arena;
};

Arena::Arena(int helpers) : body_(new Body{{}, tbb::task_arena(helpers, 0)}) {
  if (helpers >= tbb::info::default_concurrency())
    body_->limit.emplace(tbb::global_control::max_allowed_parallelism,
                         static_cast<std::size_t>(helpers) + 1);
}

Arena::~Arena() = default;

void Arena::enqueue(void (*run)(void*), void* argument) {
  body_->arena.enqueue([run, argument] { run(argument); });
}

}  // namespace rapt
