#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/access.h"
#include "base/indexed_vector.h"
#include "base/threads/threads.h"
#include "kernels/kernels.h"
#include "rapt/context.h"

namespace rapt {
using namespace detail;

struct Context::Impl {
  Impl(Index count, const Kernels& chosen)
      : threads(count), kernels(&chosen), isa_name(chosen.name) {}

  Threads threads;
  const Kernels* kernels;
  std::string isa_name;
};

}  // namespace rapt

namespace rapt::detail {

inline const Kernels& kernels_of(const Context& context) { return *impl_of(context).kernels; }
inline const Threads& threads_of(const Context& context) { return impl_of(context).threads; }
inline Index worker_count(const Context& context) { return threads_of(context).count(); }

/// One worker for each thread that takes part in a loop, made when it first does: a call with few
/// tasks does not pay for many threads.
template <class Worker>
class Workers {
 public:
  explicit Workers(const Context& context) : workers_(worker_count(context)) {}

  template <class... Arguments>
  Worker& get(Index worker, Arguments&&... arguments) {
    std::unique_ptr<Worker>& place = workers_[worker];
    if (!place) place = std::make_unique<Worker>(std::forward<Arguments>(arguments)...);
    return *place;
  }

 private:
  IndexedVector<std::unique_ptr<Worker>> workers_;
};

inline void for_each_task(const Context& context, Index tasks,
                          const std::function<void(Index task, Index worker)>& run) {
  threads_of(context).for_each_task(tasks, run);
}
inline void for_each_task_at_home(const Context& context, Index tasks,
                                  const std::function<void(Index task, Index worker)>& run) {
  threads_of(context).for_each_task_at_home(tasks, run);
}

}  // namespace rapt::detail
