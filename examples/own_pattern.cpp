// An attention pattern of your own: compose it, look at the tiles it visits, run it forward and
// backward, and compare with a dense mask that says the same pair by pair.
//
//   build/release/bin/example_own_pattern

#include <rapt/rapt.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>

namespace {

using rapt::Index;

constexpr Index tokens = 2000, second = 1200;  // where the second document begins

/// Two documents in one sequence. A token sees its own document: the 128 tokens up to itself, and
/// the first token, which often serves as an attention sink.
rapt::Pattern packed() {
  return rapt::causal() & rapt::documents({second, tokens - second}) &
         (rapt::window(127, 0) | rapt::tokens({0, second}));
}

/// The same rule as a mask, to be added to the logits: [1, 1, tokens, tokens].
rapt::Tensor packed_mask() {
  rapt::Tensor mask({1, 1, tokens, tokens});
  for (Index query = 0; query < tokens; ++query)
    for (Index key = 0; key < tokens; ++key) {
      const Index distance = query - key;
      const bool same_document = (query < second) == (key < second);
      const bool first = key == 0 || key == second;
      const bool visible = distance >= 0 && same_document && (distance < 128 || first);
      mask.view().row(0, 0, query)[key] = visible ? 0 : -std::numeric_limits<float>::infinity();
    }
  return mask;
}

rapt::Tensor random_tensor(const rapt::Shape& shape, unsigned seed) {
  rapt::Tensor tensor(shape);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  for (float& x : tensor.numbers()) x = normal(generator);
  return tensor;
}

float difference(const rapt::Tensor& a, const rapt::Tensor& b) {
  float largest = 0;
  for (std::size_t i = 0; i < a.numbers().size(); ++i)
    largest = std::max(largest, std::abs(a.numbers()[i] - b.numbers()[i]));
  return largest;
}

}  // namespace

int main() {
  const rapt::Plan plan(packed(), {.queries = tokens, .keys = tokens});
  std::cout << rapt::to_string(plan.pattern()) << '\n' << plan.drawing(72);
  const rapt::Tensor mask = packed_mask();
  std::cout << plan.pairs() << " of " << tokens * tokens << " pairs; the plan takes "
            << plan.bytes() / 1024 << " KiB, the mask " << mask.elements() * 4 / 1024 << " KiB\n";

  const rapt::Shape shape{1, 4, tokens, 64};
  const rapt::Tensor q = random_tensor(shape, 1), k = random_tensor(shape, 2);
  const rapt::Tensor v = random_tensor(shape, 3), dout = random_tensor(shape, 4);
  const auto step = [&](const rapt::Attention& how) {
    rapt::Attended y = rapt::attend(q, k, v, how);
    rapt::Gradients g = rapt::attend_backward(dout, q, k, v, y, how);
    return std::pair(std::move(y), std::move(g));
  };
  const auto [y, g] = step({.pattern = packed()});
  const auto [dense_y, dense_g] = step({.bias = rapt::dense_bias(mask)});

  const float out = difference(y.out, dense_y.out), dq = difference(g.dq, dense_g.dq);
  const float dk = difference(g.dk, dense_g.dk), dv = difference(g.dv, dense_g.dv);
  std::cout << "largest difference from the dense mask: out " << out << ", dq " << dq << ", dk "
            << dk << ", dv " << dv << '\n';
  return std::max({out, dq, dk, dv}) < 1e-4F ? 0 : 1;
}
