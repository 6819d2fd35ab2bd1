#include "formats/tensors/gguf_file.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "base/buffer.h"
#include "base/io/check_input.h"
#include "formats/config/json.h"

namespace rapt::detail {
namespace {

/// Bytes of blocks that are read at a time.
constexpr Index data_chunk_bytes = Index{1} << 20;

GgufHeader read_file_header(const InputFile& file) {
  return read_gguf_header({file.path(), file.size(),
                           [&](Index offset, std::span<std::byte> to) { file.read(offset, to); }});
}

Tensor uninitialized_for(const GgufTensor& tensor, const std::string& path) {
  try {
    return Tensor::uninitialized(tensor.shape);
  } catch (const std::bad_alloc&) {
    fail_input(path, ": tensor ", printable(tensor.name), " of shape ", tensor.shape,
               " needs more memory than there is");
  }
}

}  // namespace

GgufFile::GgufFile(const std::string& path) : file_(path), header_(read_file_header(file_)) {}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto at = std::lower_bound(
      header_.tensors.begin(), header_.tensors.end(), name,
      [](const GgufTensor& tensor, std::string_view n) { return tensor.name < n; });
  return at != header_.tensors.end() && at->name == name ? &*at : nullptr;
}

void GgufFile::read_bytes(const GgufTensor& tensor, Index first, std::span<std::byte> to) const {
  assert(0 <= first && first + static_cast<Index>(to.size()) <= tensor.bytes);
  file_.read(tensor.offset + first, to);
}

void check_readable(const std::string& path, const GgufTensor& tensor) {
  check_input(tensor.format->expand != nullptr, path, ": tensor ", printable(tensor.name), " is ",
              tensor.format->name,
              ", unsupported; expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to "
              "Q8_K");
}

Tensor GgufFile::read(std::string_view name) const {
  const GgufTensor* tensor = find(name);
  check_input(tensor != nullptr, path(), ": has no tensor ", printable(name));
  const GgmlFormat& format = *tensor->format;
  check_readable(path(), *tensor);
  Tensor numbers = uninitialized_for(*tensor, path());
  float* out = numbers.data();
  if (format.type == GgmlType::f32) {
    read_bytes(*tensor, 0, std::as_writable_bytes(numbers.numbers()));
    return numbers;
  }
  Buffer<std::byte> blocks(data_chunk_bytes / format.bytes * format.bytes);
  for (Index first = 0; first < tensor->bytes; first += blocks.size()) {
    const Index bytes = std::min(blocks.size(), tensor->bytes - first);
    read_bytes(*tensor, first, {blocks.data(), blocks.data() + bytes});
    for (Index at = 0; at < bytes; at += format.bytes, out += format.numbers)
      format.expand(blocks.data() + at, out);
  }
  return numbers;
}

}  // namespace rapt::detail
