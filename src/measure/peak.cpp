#include "rapt/peak.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/indexed_vector.h"
#include "kernels/bf16_kernels.h"
#include "kernels/context.h"
#include "kernels/cpu_features.h"

namespace rapt {
using namespace detail;
namespace {

/// Best rate over repeated runs; `work` is called once by each worker and returns what it did.
template <class Work>
double best_rate(const Context& context, double seconds, const Work& work) {
  double best = 0;
  const Clock::time_point start = Clock::now();
  do {
    IndexedVector<double> done(worker_count(context));
    const Clock::time_point begin = Clock::now();
    for_each_task(context, worker_count(context),
                  [&](Index task, Index) { done[task] = work(task); });
    double total = 0;
    for (const double part : done) total += part;
    best = std::max(best, total / seconds_since(begin));
  } while (seconds_since(start) < seconds);
  return best;
}

double measure_exp_gops(double seconds, const Context& context) {
  constexpr Index count = 2048;  // 16 KiB of operands and results: stays in L1
  constexpr Index repeats = 200;
  const Kernels& kernels = kernels_of(context);
  const double rate = best_rate(context, seconds, [&](Index) {
    alignas(64) float x[count];
    alignas(64) float y[count];
    for (Index i = 0; i < count; ++i) x[i] = -0.01f * static_cast<float>(i);
    for (Index i = 0; i < repeats; ++i) kernels.vectors.exp2(x, count, y);
    return static_cast<double>(count * repeats);
  });
  return rate / 1e9;
}

}  // namespace

double measure_read_gbytes(Index bytes, double seconds, const Context& context) {
  const Index numbers = bytes / Index{sizeof(float)};
  const Index share = std::max(tile, numbers / worker_count(context) / tile * tile);
  Buffer<float> memory(share * worker_count(context));
  std::fill(memory.begin(), memory.end(), 1.0f);
  std::atomic<float> sink{0};
  const Kernels& kernels = kernels_of(context);
  const double rate = best_rate(context, seconds, [&](Index task) {
    sink.store(kernels.peak.read_loop(memory.data() + task * share, share),
               std::memory_order_relaxed);
    return static_cast<double>(share) * sizeof(float);
  });
  return rate / 1e9;
}

double measure_copy_gbytes(Index bytes, double seconds, const Context& context) {
  const Index share = std::max<Index>(64, bytes / worker_count(context));
  Buffer<std::byte> from(share * worker_count(context)), to(share * worker_count(context));
  std::fill(from.begin(), from.end(), std::byte{1});
  std::fill(to.begin(), to.end(), std::byte{0});
  const double rate = best_rate(context, seconds, [&](Index task) {
    std::memcpy(to.data() + task * share, from.data() + task * share, to_size(share));
    return 2 * static_cast<double>(share);
  });
  return rate / 1e9;
}

double measure_fma_gflops(double seconds, const Context& context) {
  const Kernels& kernels = kernels_of(context);
  return best_rate(context, seconds, [&](Index) { return kernels.peak.fma_loop(100000); }) / 1e9;
}

double measure_bf16_gflops(double seconds, const Context& context) {
  const Kernels& kernels = kernels_of(context);
  if (!kernels.has_bf16()) return 0;
  return best_rate(context, seconds,
                   [&](Index) {
                     const ProductSession<Bf16> session(kernels);
                     return kernels.bf16->peak_loop(10000);
                   }) /
         1e9;
}

std::optional<std::string> why_no_amx() {
  if (amx().usable) return std::nullopt;
  return amx().why_not;
}

Peak measure_peak(double seconds, const Context& context) {
  constexpr Index far_beyond_caches = Index{1} << 28;
  const double share = seconds / 4;
  return {.fma_gflops = measure_fma_gflops(share, context),
          .bf16_gflops = measure_bf16_gflops(share, context),
          .exp_gops = measure_exp_gops(share, context),
          .read_gbytes = measure_read_gbytes(far_beyond_caches, share, context)};
}

}  // namespace rapt
