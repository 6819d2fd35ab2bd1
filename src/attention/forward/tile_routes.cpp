#include <deque>

#include "attention/cache/cached_keys.h"
#include "attention/forward/forward.h"
#include "kernels/bf16_kernels.h"
#include "kernels/cpu_features.h"

namespace rapt::detail {
namespace {

template <class T>
void run(const Call& call, const Job& job) {
  if (call.rows() == 0) return;
  if (job.request.cached) {
    CachedKeys<T> keys(*job.request.cached->cache, *job.request.cached->tokens);
    return run_forward<T>(call, keys, job.output);
  }
  run_part<T>(call, job.output);
}

/// Every call is made, and so checked, before any is computed.
template <class T>
void run_tiles(std::span<const Job> jobs) {
  std::deque<Call> calls;
  for (const Job& job : jobs) {
    const Call& call = calls.emplace_back(job.request);
    if (const auto& cached = job.request.cached)
      check_visits(job.request.where, *cached->cache, *cached->tokens, *call.plan);
  }
  for (const Job& job : jobs) {
    run<T>(calls.front(), job);
    calls.pop_front();
  }
}

/// Why these kernels do not use AMX.
std::string why_no_amx(const Kernels& kernels) {
  return amx().usable ? std::string("AMX is available, but not in ") + kernels.name : amx().why_not;
}

std::string bf16_operands(const Request& request) {
  const Kernels& kernels = kernels_of(request.context);
  const bool uses_amx = kernels.bf16 == bf16_kernels_of(Bf16Engine::amx);
  return std::string("bf16, multiplied directly by ") + kernels.bf16->engine +
         ", summed in f32; probabilities rounded to bf16" +
         (uses_amx ? "" : "; " + why_no_amx(kernels));
}

std::string f32_operands(const Request& request) {
  const Type type = request.q.type();
  if (type == Type::f32) return "f32";
  const Kernels& kernels = kernels_of(request.context);
  const bool no_bf16 = type == Type::bf16 && !kernels.has_bf16();
  return to_string(type) + ", widened to f32 where they are packed; results rounded once" +
         (no_bf16 ? "; " + why_no_amx(kernels) : "");
}

/// Why TileLogits::is_plain() is false or dropout comes in between; null: one kernel does it all.
const char* why_in_steps(const Call& call, const Scale& scale) {
  const ScoreRule& rule = call.score_rule;
  if (rule.has_softcap()) return "soft-cap";
  if (rule.has_diagonal()) return "a bias by distance";
  if (rule.has_dense()) return "a dense bias";
  if (rule.has_dropout()) return "dropout";
  return scale.rule == Scale::Rule::value && scale.number <= 0 ? "no positive scale" : nullptr;
}

std::string f32_kernel(const Call&, const Request&) {
  return "fused f32, exact online softmax, f64 row sums and accumulators";
}

std::string bf16_kernel(const Call& call, const Request& request) {
  const char* reason = why_in_steps(call, request.how.scale);
  const std::string shape =
      reason == nullptr ? std::string("fused bf16")
                        : std::string("bf16 in steps (") + reason + "): products, softmax, P V";
  return shape + ", online softmax of rounded probabilities, f64 row sums and accumulators";
}

std::string describe(const Request& request, std::string (*kernel)(const Call&, const Request&),
                     const std::string& operands) {
  const Call call(request);
  return "kernel    " + kernel(call, request) + "\noperands  " + operands + "\ntasks     " +
         std::to_string(call.batch * call.heads *
                        divide_up(call.query_tiles(), forward_group(call))) +
         " (batch item, head, " + std::to_string(forward_group(call)) +
         " query tiles), head after head, longest first\n";
}

}  // namespace

template <class T>
void run_part(const Call& part, const ForwardOutput& output) {
  PackedKeys<T> keys(part, part.group * divide_up(part.query_tiles(), forward_group(part)));
  run_forward<T>(part, keys, output);
}

template void run_part<float>(const Call& part, const ForwardOutput& output);
template void run_part<Bf16>(const Call& part, const ForwardOutput& output);

void run_bf16_tiles(std::span<const Job> jobs) { run_tiles<Bf16>(jobs); }

void run_f32_tiles(std::span<const Job> jobs) { run_tiles<float>(jobs); }

std::string describe_bf16_tiles(const Request& request) {
  return describe(request, bf16_kernel, bf16_operands(request));
}

std::string describe_f32_tiles(const Request& request) {
  return describe(request, f32_kernel, f32_operands(request));
}

}  // namespace rapt::detail
