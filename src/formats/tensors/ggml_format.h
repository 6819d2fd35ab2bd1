#pragma once

#include <cstddef>
#include <cstdint>

#include "rapt/tensor.h"

namespace rapt::detail {

/// How the numbers of a tensor in a GGUF file are stored; the values are those of the files.
enum class GgmlType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  bf16 = 30,
};

/// Numbers are stored in blocks of `numbers`, `bytes` long each.
struct GgmlFormat {
  GgmlType type;
  const char* name;  // "Q4_1"
  Index numbers;
  Index bytes;
  /// One block as f32; null if rapt does not read the type.
  void (*expand)(const std::byte* block, float* out) noexcept;
};

/// Null if no type is stored as `type`.
const GgmlFormat* find_ggml_format(std::uint32_t type);

/// Scale and smallest number of the eight parts of a Q4_K or Q5_K block: a number is scale * code -
/// low.
struct GgmlParts {
  float scale[8], low[8];
};
GgmlParts ggml_parts(const std::byte* block);

}  // namespace rapt::detail
