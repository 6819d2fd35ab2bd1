#include <deque>

#include "attention/cache/cached_keys.h"
#include "attention/forward/forward.h"
#include "attention/route_trace.h"
#include "kernels/bf16_kernels.h"
#include "kernels/cpu_features.h"

namespace rapt {
namespace {

void run(const Call& call, const Job& job) {
  if (call.rows() == 0) return;
  if (job.request.cached) {
    CachedKeys keys(call, *job.request.cached->cache, *job.request.cached->tokens);
    return run_forward(call, keys, job.output);
  }
  PackedKeys keys(call, call.group * divide_up(call.query_tiles(), forward_group(call)));
  run_forward(call, keys, job.output);
}

/// Every call is made, and so checked, before any is computed.
void run_tiles(std::span<const Job> jobs, const PairKernels* bf16) {
  std::deque<Call> calls;
  for (const Job& job : jobs) {
    const Call& call = calls.emplace_back(job.request, bf16);
    if (const auto& cached = job.request.cached)
      CachedKeys(call, *cached->cache, *cached->tokens).check_visits(job.request.where, *call.plan);
  }
  for (const Job& job : jobs) {
    run(calls.front(), job);
    calls.pop_front();
  }
}

/// Why the tile unit is not in these kernels.
std::string why_no_tile_unit(const Kernels& kernels) {
  return amx().usable ? std::string("AMX is there, but not in ") + kernels.name : amx().why_not;
}

std::string bf16_text(const Request& request) {
  const Kernels& kernels = kernels_of(request.context);
  const bool tile_unit = kernels.pairs == pair_kernels_of(PairEngine::tiles);
  return std::string("bf16, multiplied as they are by ") + kernels.pairs->engine +
         ", summed in f32; probabilities rounded to bf16" +
         (tile_unit ? "" : "; " + why_no_tile_unit(kernels));
}

std::string operand_text(const Request& request) {
  const Type type = request.q.type();
  if (type == Type::f32) return "f32";
  const bool no_unit = type == Type::bf16 && kernels_of(request.context).pairs == nullptr;
  return text(type) + ", widened to f32 where they are packed; results rounded once" +
         (no_unit ? "; " + why_no_tile_unit(kernels_of(request.context)) : "");
}

}  // namespace

void run_bf16_tiles(std::span<const Job> jobs) {
  run_tiles(jobs, kernels_of(jobs.front().request.context).pairs);
  note_route("bf16-tiles");
}

void run_f32_tiles(std::span<const Job> jobs) {
  run_tiles(jobs, nullptr);
  note_route("f32-tiles");
}

std::string describe_tiles(const Request& request) {
  const bool bf16 = multiplies_bf16(request);
  const Call call(request);
  return std::string("kernel    ") +
         (bf16
              ? "fused bf16, online softmax of rounded probabilities, f64 row sums and accumulators"
              : "fused f32, exact online softmax, f64 row sums and accumulators") +
         "\noperands  " + (bf16 ? bf16_text(request) : operand_text(request)) + "\ntasks     " +
         std::to_string(call.batch * call.heads *
                        divide_up(call.query_tiles(), forward_group(call))) +
         " (batch item, head, " + std::to_string(forward_group(call)) +
         " query tiles), head after head, longest first\n";
}

}  // namespace rapt
