#pragma once

#include <span>

#include "base/access.h"
#include "base/buffer.h"
#include "nn/matmul/gemm.h"
#include "rapt/nn/quantized_matrix.h"

namespace rapt {
using namespace detail;

/// 32 numbers of a row. A number is scale * code + shift; with q4_0, scale * (code - 8).
struct QuantizedBlock {
  F16 scale, shift;  // a type without shifts takes none
  std::int8_t codes[32];
};

/// Rows in groups of eight, as kernels/quantized_kernels.h lays them out. Rows that fill up the
/// last group, and columns that fill up the last block, are zeros.
struct QuantizedMatrix::Impl {
  /// All numbers are 0 until they are set.
  Impl(Index rows_given, Index columns_given, Quantization type_given);

  void set(Index row, Index block, const QuantizedBlock& to);
  QuantizedBlock get(Index row, Index block) const;
  /// `columns` numbers.
  void expand_row(Index row, float* out) const;

  const Index rows, columns, blocks;
  const Quantization type;
  const Index block_bytes;  // of eight rows
  Buffer<std::byte> memory;

 private:
  std::byte* place(Index row, Index block);
  const std::byte* place(Index row, Index block) const;
};

}  // namespace rapt

namespace rapt::detail {

/// Whether blocks have a shift.
bool has_shift(Quantization type);

/// 32 numbers in a type. Throws std::invalid_argument if one is not finite or their scale is too
/// large for f16.
QuantizedBlock rounded_block(std::span<const float, 32> numbers, Quantization type);

/// a · weights', where a is f32 and its rows are contiguous; `to` is not added to.
///
/// a is rounded to 8 bits, 32 numbers of a row at a time, to the nearest multiple of m / 127, m
/// being the largest size among them. So a result is within
///   the sum over blocks of m / 254 * the sum of the sizes of the block's weights
/// from that of the expanded weights, and besides within 2^-24 (2 blocks + 6) times the sum of the
/// sizes of its terms, scale * code * a and shift * a, of what f32 rounds. A row of a gives the
/// same bits in any batch and for any number of threads; one with an infinite number or NaN gives
/// NaN.
void multiply(const Matrix& a, const QuantizedMatrix& weights, const Product& to,
              const Context& context);

}  // namespace rapt::detail
