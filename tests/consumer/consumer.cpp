#include <rapt/rapt.h>

#include <cmath>
#include <cstdio>
#include <vector>

// Two tokens, causal: the first query sees only itself, so its output is its own value.
int main() {
  const std::vector<float> numbers = {1, 0, 0, 1};
  const rapt::View x(numbers, {1, 1, 2, 2});
  const rapt::Attended y = rapt::attend(x, x, x, {.pattern = rapt::causal()});
  std::printf("rapt %s: %g %g\n", rapt::version().c_str(), y.out.numbers()[0], y.out.numbers()[1]);
  const double seen = std::exp(std::sqrt(0.5));
  const double expected = seen / (1 + seen);
  return y.out.numbers()[0] == 1 && std::abs(y.out.numbers()[3] - expected) < 1e-6 ? 0 : 1;
}
