#pragma once

#include <span>
#include <string>

#include "formats/tensors/gguf_file.h"
#include "rapt/nn/quantized_matrix.h"

namespace rapt::detail {

/// The smallest type that holds blocks of the format: q8_0, q4_0 and q4_1 as they are, Q5_0, Q5_1
/// with their codes in 8 bits. Q4_K and Q5_K keep their codes too, but their scales and shifts are
/// products that f16 has to round. Everything else is requantized to q8_0.
Quantization quantization_of(const GgmlFormat& format);

/// Matrices [rows, columns] of a file one below the other, in the order of the names: what a model
/// multiplies at once. If their types differ, all get one that holds each of them, blocks that are
/// not stored in it being requantized. Throws std::runtime_error if one is missing, is no matrix,
/// has other columns, or has a type that cannot be read.
QuantizedMatrix read_quantized(const GgufFile& file, std::span<const std::string> names,
                               const Context& context = {});

}  // namespace rapt::detail
