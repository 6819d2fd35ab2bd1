#include "lab/experiments/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/indexed_vector.h"
#include "base/torch_random.h"

namespace rapt::lab {
using namespace detail;

Tensor normals(const Shape& shape, std::uint64_t seed) {
  Tensor made = Tensor::uninitialized(shape);
  TorchRandom(seed).normal(made.numbers());
  return made;
}

double mean(std::span<const float> numbers) { return mean(wide(numbers)); }

double mean(std::span<const double> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) /
         static_cast<double>(std::max<std::size_t>(1, numbers.size()));
}

double root_mean_square(std::span<const double> numbers) {
  return std::sqrt(std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0) /
                   static_cast<double>(std::max<std::size_t>(1, numbers.size())));
}

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + (std::ssize(numbers) - 1) / 2;
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

std::vector<double> wide(std::span<const float> numbers) {
  return {numbers.begin(), numbers.end()};
}

std::span<const float> numbers_of(const Tensor& tensor) { return tensor.numbers(); }

std::vector<double> row_lengths(const Tensor& rows) {
  const Index dim = rows.shape()[rows.shape().rank() - 1];
  std::vector<double> lengths;
  for (const float* row = rows.data(); row != rows.data() + rows.elements(); row += dim) {
    double square = 0;
    for (Index c = 0; c < dim; ++c)
      square += static_cast<double>(row[c]) * static_cast<double>(row[c]);
    lengths.push_back(std::sqrt(square));
  }
  return lengths;
}

double NamedScale::at(Index dim) const {
  const double d = static_cast<double>(dim);
  if (scale.rule == Scale::Rule::inverse_sqrt_dim) return 1 / std::sqrt(d);
  if (scale.rule == Scale::Rule::inverse_dim) return 1 / d;
  return scale.number;
}

std::vector<NamedScale> compared_scales() {
  return {
      {"none", Scale::none()}, {"1/√d", Scale::inverse_sqrt_dim()}, {"1/d", Scale::inverse_dim()}};
}

std::vector<double> softmax_row(const std::vector<float>& logits, double factor,
                                const Context& context) {
  const Index count = std::ssize(logits);
  Tensor q({1, 1, 1, 1}), k({1, 1, count, 1}), v({1, 1, count, count});
  q.data()[0] = 1;
  for (Index i = 0; i < count; ++i) {
    k.data()[i] = element(logits, i);
    v.data()[i * count + i] = 1;
  }
  Attention how;
  how.scale = Scale::value(factor);
  return wide(numbers_of(attend(q.view(), k.view(), v.view(), how, context).out));
}

std::string short_text(double number) {
  if (std::abs(number) >= 999.5 && std::abs(number) < 1e9) return count_text(std::llround(number));
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

std::string count_text(Index number) {
  std::string text = std::to_string(number);
  for (Index at = std::ssize(text) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(text.begin() + at, ',');
  return text;
}

}  // namespace rapt::lab
