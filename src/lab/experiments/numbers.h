#pragma once

#include <span>
#include <string>
#include <vector>

#include "rapt/attention.h"

namespace rapt::lab {
using namespace detail;

/// Standard normal numbers, those of torch.randn with this seed.
Tensor normals(const Shape& shape, std::uint64_t seed);

double mean(std::span<const float> numbers);
double mean(std::span<const double> numbers);
double root_mean_square(std::span<const double> numbers);
/// The median; of an even number of values, the lower of the two in the middle.
double median(std::vector<double> numbers);
std::vector<double> wide(std::span<const float> numbers);

/// All numbers of a tensor.
std::span<const float> numbers_of(const Tensor& tensor);
/// Lengths of the rows [.., dim].
std::vector<double> row_lengths(const Tensor& rows);

/// The scales that are compared, under the names that figures call them.
struct NamedScale {
  std::string name;
  Scale scale;
  double at(Index dim) const;  // the factor
};
std::vector<NamedScale> compared_scales();

/// Softmax of given logits times a factor, by the engine: keys of one number, values that are the
/// unit vectors.
std::vector<double> softmax_row(const std::vector<float>& logits, double factor,
                                const Context& context);

/// 3 significant digits; whole numbers from 1,000 on keep all digits.
std::string short_text(double number);
/// "16,384"
std::string count_text(Index number);

}  // namespace rapt::lab
