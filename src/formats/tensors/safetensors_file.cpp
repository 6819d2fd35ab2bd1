#include "formats/tensors/safetensors_file.h"

#include <algorithm>
#include <bit>
#include <new>
#include <optional>

#include "base/io/check_input.h"
#include "base/sizes.h"
#include "formats/config/json.h"
#include "formats/tensors/safetensors_header.h"

namespace rapt::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr Index length_bytes = 8;  // the file begins with the length of its header

/// What a file that begins so is more likely to be.
std::string hint_of(std::string_view begin) {
  if (begin.starts_with("version ")) return " (a Git LFS pointer? fetch the file itself)";
  if (begin.starts_with("<")) return " (a web page? the download went wrong)";
  if (begin.starts_with("PK\x03\x04") || begin.starts_with("\x80"))
    return " (a pickle of PyTorch? not supported by design: it can run code)";
  if (begin.starts_with("GGUF")) return " (a GGUF file, not a safetensors file)";
  return "";
}

SafetensorsHeader read_safetensors_header(const InputFile& file) {
  const std::string& path = file.path();
  std::string begin(to_size(std::min(file.size(), length_bytes)), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  check_input(file.size() >= length_bytes, path, ": is ", file.size(),
              " bytes long, a safetensors file is not shorter than 8 bytes", hint_of(begin));
  std::uint64_t length = 0;
  std::copy(begin.begin(), begin.end(), reinterpret_cast<char*>(&length));
  const auto limit = static_cast<std::uint64_t>(JsonLimits{}.bytes);
  check_input(length > 0, path, ": the header has 0 bytes, expected JSON");
  check_input(length <= limit, path, ": the header has ", length, " bytes, the limit is ", limit,
              hint_of(begin));
  const auto header_bytes = static_cast<Index>(length);
  check_input(header_bytes <= file.size() - length_bytes, path, ": the header has ", length,
              " bytes, but the file has only ", file.size() - length_bytes, " after its length");
  std::string text(to_size(header_bytes), '\0');
  file.read(length_bytes, std::as_writable_bytes(std::span(text)));
  const Index data = length_bytes + header_bytes;
  return parse_safetensors_header(text, path, data, file.size() - data);
}

std::optional<Type> type_of_stored(const std::string& type) {
  if (type == "F32") return Type::f32;
  if (type == "BF16") return Type::bf16;
  if (type == "F16") return Type::f16;
  return std::nullopt;
}

Shape shape_of(const StoredTensor& tensor, const std::string& path) {
  check_input(std::cmp_less_equal(tensor.shape.size(), Shape::max_rank), path, ": tensor ",
              printable(tensor.name), " has ", tensor.shape.size(), " axes, at most ",
              Shape::max_rank, " are supported");
  if (tensor.shape.empty()) return {1};
  const std::vector<Index>& s = tensor.shape;
  if (s.size() == 1) return {s[0]};
  if (s.size() == 2) return {s[0], s[1]};
  if (s.size() == 3) return {s[0], s[1], s[2]};
  return {s[0], s[1], s[2], s[3]};
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  SafetensorsHeader header = read_safetensors_header(file_);
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const StoredTensor& tensor, std::string_view n) { return tensor.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  check_input(tensor != nullptr, path(), ": has no tensor ", printable(name));
  const std::optional<Type> type = type_of_stored(tensor->type);
  check_input(type.has_value(), path(), ": tensor ", printable(name), " is ", tensor->type,
              ", unsupported; expected F32, BF16 or F16");
  const Shape shape = shape_of(*tensor, path());
  Tensor numbers;
  try {
    numbers = Tensor::uninitialized(shape, *type);
  } catch (const std::bad_alloc&) {
    fail_input(path(), ": tensor ", printable(name), " needs ", tensor->bytes,
               " bytes of memory, more than there is");
  }
  if (tensor->bytes > 0)
    file_.read(tensor->offset, {static_cast<std::byte*>(numbers.memory()), to_size(tensor->bytes)});
  return numbers;
}

namespace {

/// Numbers whose exponent is all ones. Looks at bits, a stretch at a time whose count fits the
/// words, so that it runs at the speed of memory.
template <class Word>
Index count_exponents(const void* memory, Index count, Word exponent) {
  const auto* words = static_cast<const Word*>(memory);
  constexpr Index stretch = 8192;
  Index found = 0;
  for (Index first = 0; first < count; first += stretch) {
    Word here = 0;
    for (Index i = first; i < std::min(count, first + stretch); ++i)
      here = static_cast<Word>(here + ((words[i] & exponent) == exponent ? 1 : 0));
    found += here;
  }
  return found;
}

}  // namespace

Index count_non_finite(const Tensor& tensor) {
  if (tensor.type() == Type::f32)
    return count_exponents<std::uint32_t>(tensor.memory(), tensor.elements(), 0x7F800000);
  const std::uint16_t exponent = tensor.type() == Type::bf16 ? 0x7F80 : 0x7C00;
  return count_exponents<std::uint16_t>(tensor.memory(), tensor.elements(), exponent);
}

}  // namespace rapt::detail
