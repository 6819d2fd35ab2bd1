#pragma once

#include <string>

#include "base/threads.h"
#include "kernels/kernels.h"
#include "rapt/context.h"

namespace rapt {

struct Context::Body {
  Body(Index count, const Kernels& chosen)
      : threads(count), kernels(&chosen), isa_name(chosen.name) {}

  Threads threads;
  const Kernels* kernels;
  std::string isa_name;
};

inline const Kernels& kernels_of(const Context& context) { return *context.body().kernels; }
inline const Threads& threads_of(const Context& context) { return context.body().threads; }
inline Index workers(const Context& context) { return threads_of(context).count(); }

inline void for_each_task(const Context& context, Index tasks,
                          const std::function<void(Index task, Index worker)>& run) {
  threads_of(context).for_each_task(tasks, run);
}

}  // namespace rapt
