#pragma once

namespace rapt::detail {

/// The double that a reader gets from a number's shortest decimal spelling if it takes all digits
/// as one whole number and divides by a power of ten, as the tokenizers library does: in the last
/// bit it differs from the nearest for one number in seven, which decides between pieces of equal
/// frequency.
double divided_decimal(double value);

}  // namespace rapt::detail
