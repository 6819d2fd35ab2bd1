#include "nn/matmul/quantized_matrix.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/check.h"
#include "base/flush_denormals.h"
#include "kernels/cpu_features.h"
#include "kernels/quantized_kernels.h"
#include "nn/rows.h"

namespace rapt {
using namespace detail;
namespace {

/// Weights that a task reads, and rows it takes at a time: both then fit a core's own cache.
constexpr Index weights_per_task = Index{1} << 16, rows_per_block = 64;

bool has_four_bits(Quantization type) {
  return type == Quantization::q4_0 || type == Quantization::q4_1;
}

Index header_bytes(Quantization type) { return has_shift(type) ? 32 : 16; }

/// Codes of one row, `codes` being its first four: fours are 32 bytes apart.
void store_codes(const std::int8_t* from, Quantization type, std::byte* codes) {
  if (!has_four_bits(type)) {
    for (Index four = 0; four < 8; ++four) std::memcpy(codes + four * 32, from + four * 4, 4);
    return;
  }
  for (Index i = 0; i < 16; ++i)
    codes[i / 4 * 32 + i % 4] = static_cast<std::byte>((from[i] & 15) | (from[i + 16] & 15) << 4);
}
void load_codes(const std::byte* codes, Quantization type, std::int8_t* to) {
  if (!has_four_bits(type)) {
    for (Index four = 0; four < 8; ++four) std::memcpy(to + four * 4, codes + four * 32, 4);
    return;
  }
  for (Index i = 0; i < 16; ++i) {
    const std::byte both = codes[i / 4 * 32 + i % 4];
    to[i] = static_cast<std::int8_t>(both & std::byte{15});
    to[i + 16] = static_cast<std::int8_t>(both >> 4);
  }
}

void store_half(std::byte* to, F16 x) { std::memcpy(to, &x.bits, sizeof x.bits); }
F16 load_half(const std::byte* from) {
  F16 x;
  std::memcpy(&x.bits, from, sizeof x.bits);
  return x;
}

/// What a product reads of its left operand, `rows_per_block` rows after the other.
struct Activations {
  Activations(Index row_count, Index block_count)
      : step(std::min(row_count, rows_per_block)),
        blocks(block_count),
        codes(checked_product({divide_up(row_count, step), step, blocks, quantized_block})),
        about(divide_up(row_count, step) * step * blocks) {}

  /// `first` is a multiple of rows_per_block.
  ActivationRows part(Index first, Index count) const {
    return {codes.data() + first * blocks * quantized_block, about.data() + first * blocks, count,
            blocks, step};
  }
  void round(const QuantizedKernels& kernels, Index row, const float* x, Index columns) {
    const Index place = row / step * step * blocks + row % step;
    kernels.round(x, columns, codes.data() + place * quantized_block, about.data() + place, step);
  }

  const Index step, blocks;
  Buffer<std::int8_t> codes;
  Buffer<ActivationBlock> about;
};

const QuantizedKernels& quantized_kernels_of(const Context& context) {
  const NetworkKernels& kernels = network_kernels_of(context);
  const bool vnni = kernels.quantized_vnni != nullptr && has_avx512_vnni();
  return vnni ? *kernels.quantized_vnni : *kernels.quantized;
}

Activations rounded(const Matrix& a, const Context& context) {
  Activations out(a.rows, divide_up(a.columns, quantized_block));
  const QuantizedKernels& kernels = quantized_kernels_of(context);
  for_each_row_block(context, a.rows, a.columns, [&](Index first, Index count) {
    for (Index row = first; row < first + count; ++row)
      out.round(kernels, row, static_cast<const float*>(a.data) + row * a.row_step, a.columns);
  });
  return out;
}

/// Weight rows of a task: pairs of groups, shared out evenly over an even number of tasks.
Index weight_rows_per_task(const QuantizedMatrix::Impl& w) {
  const Index pairs = divide_up(w.rows, 2 * quantized_rows);
  const Index most =
      std::max<Index>(1, weights_per_task / (2 * quantized_rows * std::max<Index>(1, w.columns)));
  const Index tasks = divide_up(divide_up(pairs, most), 2) * 2;
  return divide_up(pairs, tasks) * 2 * quantized_rows;
}

}  // namespace

bool detail::has_shift(Quantization type) {
  return type == Quantization::q8_1 || type == Quantization::q4_1;
}

QuantizedMatrix::Impl::Impl(Index rows_given, Index columns_given, Quantization type_given)
    : rows(rows_given),
      columns(columns_given),
      blocks(divide_up(columns, quantized_block)),
      type(type_given),
      block_bytes(header_bytes(type) + (has_four_bits(type) ? 128 : 256)),
      memory(checked_product({divide_up(rows, quantized_rows), blocks, block_bytes})) {
  std::fill(memory.begin(), memory.end(), std::byte{0});  // scales and shifts of 0
}

const std::byte* QuantizedMatrix::Impl::place(Index row, Index block) const {
  assert(0 <= row && row < rows && 0 <= block && block < blocks);
  return memory.data() + (row / quantized_rows * blocks + block) * block_bytes;
}
std::byte* QuantizedMatrix::Impl::place(Index row, Index block) {
  return const_cast<std::byte*>(std::as_const(*this).place(row, block));
}

void QuantizedMatrix::Impl::set(Index row, Index block, const QuantizedBlock& to) {
  std::byte* group = place(row, block);
  const Index lane = row % quantized_rows;
  store_half(group + 2 * lane, to.scale);
  if (has_shift(type)) store_half(group + 16 + 2 * lane, to.shift);
  store_codes(to.codes, type, group + header_bytes(type) + 4 * lane);
}

QuantizedBlock QuantizedMatrix::Impl::get(Index row, Index block) const {
  const std::byte* group = place(row, block);
  const Index lane = row % quantized_rows;
  QuantizedBlock out{.scale = load_half(group + 2 * lane), .shift = {}, .codes = {}};
  if (has_shift(type)) out.shift = load_half(group + 16 + 2 * lane);
  load_codes(group + header_bytes(type) + 4 * lane, type, out.codes);
  return out;
}

void QuantizedMatrix::Impl::expand_row(Index row, float* out) const {
  const int zero = type == Quantization::q4_0 ? 8 : 0;
  for (Index block = 0; block < blocks; ++block) {
    const QuantizedBlock from = get(row, block);
    const auto scale = static_cast<float>(from.scale), shift = static_cast<float>(from.shift);
    const Index first = block * quantized_block;
    for (Index i = 0; i < std::min(quantized_block, columns - first); ++i)
      out[first + i] = scale * static_cast<float>(from.codes[i] - zero) + shift;
  }
}

void detail::multiply(const Matrix& a, const QuantizedMatrix& weights, const Product& to,
                      const Context& context) {
  const QuantizedMatrix::Impl& w = impl_of(weights);
  assert(a.type == Type::f32 && a.column_step == 1 && a.columns == w.columns && !to.add);
  if (a.rows == 0 || w.rows == 0) return;
  const FlushDenormals guard;
  const Activations x = rounded(a, context);
  const auto product = quantized_kernels_of(context).product[w.type];
  const Index columns_per = weight_rows_per_task(w);
  const Index column_tasks = divide_up(w.rows, columns_per);
  const Index row_tasks = divide_up(a.rows, rows_per_block);
  for_each_task(context, column_tasks * row_tasks, [&](Index task, Index) {
    const Index column = task / row_tasks * columns_per, row = task % row_tasks * rows_per_block;
    const std::byte* groups = w.memory.data() + column / quantized_rows * w.blocks * w.block_bytes;
    product(x.part(row, std::min(rows_per_block, a.rows - row)), groups,
            {.data = to.data + row * to.stride + column,
             .stride = to.stride,
             .columns = std::min(columns_per, w.rows - column),
             .bias = to.bias == nullptr ? nullptr : to.bias + column});
  });
}

}  // namespace rapt
