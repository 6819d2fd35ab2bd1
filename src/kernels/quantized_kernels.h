#pragma once

#include "base/enum_array.h"
#include "rapt/nn/quantized_matrix.h"

namespace rapt::detail {

// Weights of 4 or 8 bits and the activations they are multiplied with. A row is split into blocks
// of 32 numbers; eight rows are stored together, block after block:
//   8 scales, f16; 8 shifts, f16, if the weights have any; the codes of the block.
// Codes of 8 bits: [8 fours][8 rows][4], signed. Codes of 4 bits: [4][8 rows][4] bytes, four i in
// the lower halves and four i + 4 in the upper ones, unsigned. A four is four neighbours of a row.

inline constexpr Index quantized_block = 32, quantized_rows = 8;

/// A block of 32 activations rounded to 8 bits: scale * code, codes from -127 to 127.
struct ActivationBlock {
  float scale;             // NaN if a number of the block is infinite or NaN
  float total;             // scale * the sum of the codes
  std::int32_t codes_sum;  // the sum of the codes
};

/// Activations, block after block, so that the rows of a tile are next to each other.
struct ActivationRows {
  const std::int8_t* codes;       // [blocks][step][32]
  const ActivationBlock* blocks;  // [blocks][step]
  Index rows, blocks_per_row;
  Index step;  // rows that were allocated: at least as many as there are
};

/// The result of a product with groups of eight weight rows.
struct QuantizedResult {
  float* data;
  Index stride;       // between rows
  Index columns;      // at most 8 for each group of weight rows
  const float* bias;  // [columns] or null
};

/// Inner loops for one instruction set.
struct QuantizedKernels {
  /// `count` numbers of one row as blocks, `step` apart, the last one filled up with zeros.
  void (*round)(const float* x, Index count, std::int8_t* codes, ActivationBlock* blocks,
                Index step) noexcept;
  /// to = x · groups' + bias. By how a weight is made of its code: scale * code; the same + shift;
  /// scale * (code - 8) with 4 bits; scale * code + shift with 4 bits.
  ///
  /// The sums of a block are exact; blocks are added in f32, in order, whatever the other rows are.
  using Product = void (*)(const ActivationRows& x, const std::byte* groups,
                           const QuantizedResult& to) noexcept;
  EnumArray<Quantization, Product> product;
};

}  // namespace rapt::detail
