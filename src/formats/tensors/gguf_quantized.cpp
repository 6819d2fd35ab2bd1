#include "formats/tensors/gguf_quantized.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/indexed_vector.h"
#include "base/io/check_input.h"
#include "formats/config/json.h"
#include "nn/matmul/quantized_matrix.h"
#include "nn/rows.h"

namespace rapt::detail {
namespace {

/// Bytes of a tensor that are read at a time.
constexpr Index row_chunk_bytes = Index{1} << 22;

F16 half_at(const std::byte* from) {
  F16 x;
  std::memcpy(&x.bits, from, sizeof x.bits);
  return x;
}
int code_at(const std::byte* from) { return static_cast<int>(*from); }

/// Four-bit codes of 32 numbers: i and i + 16 share a byte.
void split_codes(const std::byte* from, QuantizedBlock& to) {
  for (int i = 0; i < 16; ++i) {
    to.codes[i] = static_cast<std::int8_t>(code_at(from + i) & 15);
    to.codes[i + 16] = static_cast<std::int8_t>(code_at(from + i) >> 4);
  }
}

/// Adds the fifth bits, all in one word, and takes `zero` away.
void add_fifths(const std::byte* from, int zero, QuantizedBlock& to) {
  std::uint32_t fifths;
  std::memcpy(&fifths, from, sizeof fifths);
  for (int i = 0; i < 32; ++i) {
    const int fifth = static_cast<int>(fifths >> i & 1) << 4;
    to.codes[i] = static_cast<std::int8_t>((to.codes[i] | fifth) - zero);
  }
}

QuantizedBlock small_block(const GgmlFormat& format, const std::byte* from) {
  QuantizedBlock to{.scale = half_at(from), .shift = {}, .codes = {}};
  switch (format.type) {
    case GgmlType::q8_0:
      std::memcpy(to.codes, from + 2, sizeof to.codes);
      break;
    case GgmlType::q4_0:
      split_codes(from + 2, to);
      break;
    case GgmlType::q4_1:
      to.shift = half_at(from + 2);
      split_codes(from + 4, to);
      break;
    case GgmlType::q5_0:
      split_codes(from + 6, to);
      add_fifths(from + 2, 16, to);
      break;
    default:  // q5_1
      to.shift = half_at(from + 2);
      split_codes(from + 8, to);
      add_fifths(from + 4, 0, to);
  }
  return to;
}

/// Part `part` of eight of a block of 256.
QuantizedBlock part_of(const GgmlFormat& format, const std::byte* from, int part) {
  const GgmlParts parts = ggml_parts(from);
  QuantizedBlock to{.scale = F16(parts.scale[part]), .shift = F16(-parts.low[part]), .codes = {}};
  const bool five = format.type == GgmlType::q5_k;
  const std::byte* codes = from + (five ? 48 : 16) + part / 2 * 32;
  for (int i = 0; i < 32; ++i) {
    const int fifth = five ? code_at(from + 16 + i) >> part & 1 : 0;
    to.codes[i] = static_cast<std::int8_t>((code_at(codes + i) >> part % 2 * 4 & 15) | fifth << 4);
  }
  return to;
}

/// Formats whose codes are kept.
bool keeps_codes(const GgmlFormat& format) {
  switch (format.type) {
    case GgmlType::q8_0:
    case GgmlType::q4_0:
    case GgmlType::q4_1:
    case GgmlType::q5_0:
    case GgmlType::q5_1:
    case GgmlType::q4_k:
    case GgmlType::q5_k:
      return true;
    default:
      return false;
  }
}

/// A matrix under way, and how a block gets into it.
class RowWriter {
 public:
  RowWriter(QuantizedMatrix::Impl& to, const GgmlFormat& format) : to_(to), format_(format) {}

  void write(Index row, const std::byte* from) const {
    if (!keeps_codes(format_)) return round_row(row, from);
    for (Index block = 0; block < to_.blocks; ++block) {
      if (format_.numbers == 32) {
        put(row, block, small_block(format_, from + block * format_.bytes));
      } else {
        const auto part = static_cast<int>(block % 8);
        put(row, block, part_of(format_, from + block / 8 * format_.bytes, part));
      }
    }
  }

 private:
  /// q8_1 holds all of the others.
  void put(Index row, Index block, QuantizedBlock from) const {
    const auto scale = static_cast<float>(from.scale), shift = static_cast<float>(from.shift);
    check(std::isfinite(scale) && std::isfinite(shift), "row ", row, " has a scale of ", scale,
          " and a shift of ", shift,
          ", expected finite numbers; weight_type = f32 with allow_non_finite loads it anyway");
    if (to_.type != Quantization::q4_0 && quantization_of(format_) == Quantization::q4_0)
      for (std::int8_t& code : from.codes) code = static_cast<std::int8_t>(code - 8);
    to_.set(row, block, from);
  }
  void round_row(Index row, const std::byte* from) const {
    IndexedVector<float> numbers(to_.blocks * 32);
    for (Index i = 0; i < to_.columns; i += format_.numbers)
      format_.expand(from + i / format_.numbers * format_.bytes, numbers.data() + i);
    for (Index block = 0; block < to_.blocks; ++block)
      put(row, block,
          rounded_block(std::span<const float, 32>(numbers.data() + block * 32, 32),
                        Quantization::q8_0));
  }

  QuantizedMatrix::Impl& to_;
  const GgmlFormat& format_;
};

/// Rows of a tensor into rows `first` and on of the matrix, in parts.
void read_rows(const GgufFile& file, const GgufTensor& tensor, Index first,
               QuantizedMatrix::Impl& to, const Context& context) {
  const Index rows = tensor.shape[0], row_bytes = tensor.bytes / rows;
  const Index together = std::clamp<Index>(row_chunk_bytes / row_bytes, 1, rows);
  Buffer<std::byte> bytes(together * row_bytes);
  const RowWriter writer(to, *tensor.format);
  for (Index begin = 0; begin < rows; begin += together) {
    const Index count = std::min(together, rows - begin);
    file.read_bytes(tensor, begin * row_bytes, {bytes.data(), bytes.data() + count * row_bytes});
    for_each_row_block(context, count, to.columns, [&](Index at, Index some) {
      for (Index row = at; row < at + some; ++row)
        writer.write(first + begin + row, bytes.data() + row * row_bytes);
    });
  }
}

const GgufTensor& matrix_of(const GgufFile& file, const std::string& name) {
  const GgufTensor* tensor = file.find(name);
  check_input(tensor != nullptr, file.path(), ": has no tensor ", printable(name));
  check_input(tensor->shape.rank() == 2, file.path(), ": tensor ", printable(name), " has shape ",
              tensor->shape, ", expected a matrix");
  check_readable(file.path(), *tensor);
  return *tensor;
}

}  // namespace

Quantization quantization_of(const GgmlFormat& format) {
  switch (format.type) {
    case GgmlType::q4_0:
      return Quantization::q4_0;
    case GgmlType::q4_1:
    case GgmlType::q4_k:
      return Quantization::q4_1;
    case GgmlType::q5_1:
    case GgmlType::q5_k:
      return Quantization::q8_1;
    default:
      return Quantization::q8_0;
  }
}

QuantizedMatrix read_quantized(const GgufFile& file, std::span<const std::string> names,
                               const Context& context) {
  check(!names.empty(), "read_quantized: no names, expected at least one");
  const GgufTensor& top = matrix_of(file, names[0]);
  Quantization type = quantization_of(*top.format);
  Index rows = 0;
  for (const std::string& name : names) {
    const GgufTensor& tensor = matrix_of(file, name);
    check_input(tensor.shape[1] == top.shape[1], file.path(), ": tensor ", printable(name),
                " has shape ", tensor.shape, ", expected ", top.shape[1], " columns as ",
                printable(top.name));
    if (quantization_of(*tensor.format) != type) type = Quantization::q8_1;
    rows += tensor.shape[0];
  }
  const auto impl = std::make_shared<QuantizedMatrix::Impl>(rows, top.shape[1], type);
  Index first = 0;
  for (const std::string& name : names) {
    const GgufTensor& tensor = matrix_of(file, name);
    try {
      read_rows(file, tensor, first, *impl, context);
    } catch (const std::invalid_argument& error) {
      fail_input(file.path(), ": tensor ", printable(name), ": ", error.what());
    }
    first += tensor.shape[0];
  }
  return Access::make<QuantizedMatrix>(impl);
}

}  // namespace rapt::detail
