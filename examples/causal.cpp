// One training step of a causal attention layer with a window, and the same numbers again when a
// token is decoded alone.
//
//   build/release/bin/example_causal

#include <rapt/rapt.h>

#include <cmath>
#include <cstdio>

namespace {

rapt::Tensor waves(const rapt::Shape& shape, float pitch) {
  rapt::Tensor tensor(shape);
  float phase = 0;
  for (float& x : tensor.numbers()) x = std::sin(phase += pitch);
  return tensor;
}

}  // namespace

int main() {
  const rapt::Index heads = 4, tokens = 300, dim = 32;
  const rapt::Tensor q = waves({1, heads, tokens, dim}, 0.7F);
  const rapt::Tensor k = waves({1, heads, tokens, dim}, 1.1F);
  const rapt::Tensor v = waves({1, heads, tokens, dim}, 1.3F);
  const rapt::Attention how{.pattern = rapt::window(63, 0), .stats = true};

  const rapt::Attended y = rapt::attend(q, k, v, how);
  const rapt::Gradients g = rapt::attend_backward(y.out, q, k, v, y, how);
  std::printf("last row: out %.6f, entropy %.4f nats, reach %.2f tokens; dq %.6f\n",
              static_cast<double>(y.out.numbers().back()),
              static_cast<double>(y.stats->entropy.numbers().back()),
              static_cast<double>(y.stats->reach.numbers().back()),
              static_cast<double>(g.dq.numbers().back()));

  // Decoding: the newest query alone against all keys. Queries are always the newest positions.
  const rapt::View all = q;
  const rapt::View newest =
      rapt::View::unchecked(all.row(0, 0, tokens - 1), {1, heads, 1, dim}, all.strides());
  const rapt::Attended again = rapt::attend(newest, k, v, how);
  std::printf("decoded:  out %.6f\n", static_cast<double>(again.out.numbers().back()));
}
