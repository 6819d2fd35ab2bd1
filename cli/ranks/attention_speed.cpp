#include "cli/ranks/attention_speed.h"

#include "cli/bench/timing.h"
#include "cli/case.h"

namespace rapt::cli {

AttentionSpeed measure_attention_speed(const distributed::CallSize& size,
                                       std::optional<Index> threads) {
  using namespace distributed;
  constexpr Index tokens = 2048, heads = 4;
  constexpr double seconds = 0.2;
  const Shape shape{1, heads, tokens, size.dim};
  const Tensor q = random_tensor(shape, 1, size.type), k = random_tensor(shape, 2, size.type);
  const Tensor v = random_tensor(shape, 3, size.type), dout = random_tensor(shape, 4, size.type);
  const Context context(threads);
  Attention how{.pattern = causal()};
  how.plan = std::make_shared<const Plan>(how.pattern, Lengths{tokens, tokens});
  const Attended y = attend(q, k, v, how, context);
  const double forward_ms = best_ms([&] { attend(q, k, v, how, context); }, seconds);
  const double backward_ms =
      best_ms([&] { attend_backward(dout, q, k, v, y, how, context); }, seconds);
  const ExchangeLoad load = load_of({how.pattern, Placement::contiguous(tokens, 1)});
  const CallSize measured{
      .heads = heads, .kv_heads = heads, .dim = size.dim, .value_dim = size.dim};
  const auto gflops = [&](RankPass pass, double ms) {
    return load.computed * static_cast<double>(heads) * pair_flops(measured, pass) / ms * 1e-6;
  };
  return {gflops(RankPass::forward, forward_ms), gflops(RankPass::backward, backward_ms)};
}

}  // namespace rapt::cli
