#include <algorithm>
#include <cmath>

#include "kernels/quantized_kernels.h"
#include "nn/matmul/quantized_matrix.h"
#include "nn/rows.h"

namespace rapt {
using namespace detail;

namespace {

/// How the numbers of a block become codes: round((x - shift) / scale) + zero, within [least,
/// most].
struct Rounding {
  F16 scale, shift;
  int zero, least, most;
};

Rounding rounding_of(const float* x, Quantization type) {
  const auto [low, high] = std::minmax_element(x, x + quantized_block);
  const float largest = std::abs(*low) > std::abs(*high) ? *low : *high;
  switch (type) {
    case Quantization::q8_0:
      return {F16(std::abs(largest) / 127), {}, 0, -127, 127};
    case Quantization::q8_1: {
      // The middle is the shift, so that codes use both signs.
      const F16 middle((*low + *high) / 2);
      const auto m = static_cast<float>(middle);
      return {F16(std::max(*high - m, m - *low) / 127), middle, 0, -127, 127};
    }
    case Quantization::q4_0:
      // The number with the largest size gets the code that has no partner, -8.
      return {F16(largest / -8), {}, 8, 0, 15};
    case Quantization::q4_1: {
      const F16 bottom(*low);
      return {F16(std::max(0.f, *high - static_cast<float>(bottom)) / 15), bottom, 0, 0, 15};
    }
  }
  return {};
}

void round_row(const float* x, Index row, QuantizedMatrix::Impl& to) {
  for (Index block = 0; block < to.blocks; ++block) {
    const Index first = block * quantized_block;
    float numbers[quantized_block] = {};
    std::copy_n(x + first, std::min(quantized_block, to.columns - first), numbers);
    to.set(row, block, rounded_block(numbers, to.type));
  }
}

}  // namespace

QuantizedBlock detail::rounded_block(std::span<const float, 32> numbers, Quantization type) {
  for (const float x : numbers) check(std::isfinite(x), "rounded: a number is ", x, ", not finite");
  const Rounding how = rounding_of(numbers.data(), type);
  const auto scale = static_cast<float>(how.scale), shift = static_cast<float>(how.shift);
  check(std::isfinite(scale) && std::isfinite(shift), "rounded: ", numbers[0],
        " and the 31 numbers after it are too large for a scale in f16");
  QuantizedBlock out{.scale = how.scale, .shift = how.shift, .codes = {}};
  const float inverse = scale == 0 ? 0 : 1 / scale;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const float code =
        std::nearbyint((numbers[i] - shift) * inverse) + static_cast<float>(how.zero);
    out.codes[i] = static_cast<std::int8_t>(
        std::clamp(code, static_cast<float>(how.least), static_cast<float>(how.most)));
  }
  return out;
}

QuantizedMatrix QuantizedMatrix::quantize(const Tensor& numbers, Quantization type,
                                          const Context& context) {
  check(numbers.shape().rank() == 2, "rounded: numbers of shape ", numbers.shape(),
        ", expected [rows, columns]");
  if (numbers.type() != Type::f32) return quantize(numbers.converted(Type::f32), type, context);
  const Index rows = numbers.shape()[0], columns = numbers.shape()[1];
  const auto impl = std::make_shared<Impl>(rows, columns, type);
  // Eight rows share bytes, so they belong to one task.
  const Index groups = divide_up(rows, quantized_rows);
  for_each_row_block(context, groups, quantized_rows * columns, [&](Index first, Index count) {
    const Index end = std::min(rows, (first + count) * quantized_rows);
    for (Index row = first * quantized_rows; row < end; ++row)
      round_row(numbers.data() + row * columns, row, *impl);
  });
  return Access::make<QuantizedMatrix>(impl);
}

Shape QuantizedMatrix::shape() const {
  return empty() ? Shape() : Shape{impl_->rows, impl_->columns};
}
Quantization QuantizedMatrix::type() const {
  check(!empty(), "type: the matrix is empty");
  return impl_->type;
}
Index QuantizedMatrix::bytes() const { return empty() ? 0 : impl_->memory.size(); }

Tensor QuantizedMatrix::dequantize() const {
  if (empty()) return {};
  Tensor out = Tensor::uninitialized(shape());
  for (Index row = 0; row < impl_->rows; ++row)
    impl_->expand_row(row, out.data() + row * impl_->columns);
  return out;
}

}  // namespace rapt
