#include "support/network.h"

#include <cmath>
#include <sstream>

#include "support/engine.h"
#include "support/truth/bound.h"

namespace rapt::test {

Wide widened(const Tensor& x) {
  Wide wide;
  for (const float number : x.numbers()) wide.push_back(static_cast<double>(number));
  return wide;
}

Wide differences(const std::function<double(const Wide&)>& f, Wide x) {
  Wide gradient;
  for (double& number : x) {
    const double middle = number, h = 1e-3;
    const auto at = [&](double step) {
      number = middle + step;
      return f(x);
    };
    const double near = at(h) - at(-h), far = at(2 * h) - at(-2 * h);
    number = middle;
    gradient.push_back((8 * near - far) / (12 * h));
  }
  return gradient;
}

std::string beyond(const std::string& what, std::span<const float> got, const Wide& want,
                   const Wide& size, double units) {
  std::ostringstream text;
  if (got.size() != want.size() || (size.size() != 1 && size.size() != want.size())) {
    text << what << ": " << got.size() << " numbers, expected " << want.size();
    return text.str();
  }
  double worst = units;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double g = static_cast<double>(got[i]), w = want[i];
    if (std::isnan(g) && std::isnan(w)) continue;
    if (std::isinf(w) && g == w) continue;
    const double off = std::abs(g - w) / (u32 * size[size.size() == 1 ? 0 : i]);
    if (off <= worst || g == w) continue;
    worst = std::isnan(off) ? INFINITY : off;
    text.str("");
    text << what << ": number " << i << " is " << g << ", expected " << w << ": " << off
         << " units, allowed " << units;
  }
  return text.str();
}

Parameter random_parameter(const std::string& name, const Shape& shape, std::uint64_t seed,
                           double scale, double shift) {
  Parameter parameter{.name = name, .value = random_tensor(shape, seed)};
  for (float& number : parameter.value.numbers())
    number = static_cast<float>(scale * static_cast<double>(number) + shift);
  return parameter;
}

void in_every_context(const std::function<void(const Context&)>& run) {
  for (const Context& context : every_isa()) run(context);
  for (const Index threads : {1, 3, 7}) run(Context(threads));
}

std::string depends_on_threads(const std::function<std::vector<Tensor>(const Context&)>& answer) {
  const std::vector<Tensor> want = answer(Context(1));
  for (const Index threads : {2, 3, 7}) {
    const std::vector<Tensor> got = answer(Context(threads));
    for (std::size_t i = 0; i < want.size(); ++i) {
      const std::string different = different_bits(
          "tensor " + std::to_string(i) + " with " + std::to_string(threads) + " threads",
          got[i].numbers(), want[i].numbers());
      if (!different.empty()) return different;
    }
  }
  return "";
}

}  // namespace rapt::test
