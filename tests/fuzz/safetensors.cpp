#include "formats/tensors/safetensors_file.h"

#include <cstdint>
#include <memory>

#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

std::string file_of(const std::string& header, std::size_t bytes) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(bytes, '\1');
}

std::vector<std::string> seeds() {
  return {
      file_of(
          R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
          R"("b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},)"
          R"("c":{"dtype":"U8","shape":[0,5],"data_offsets":[26,26]},)"
          R"("d":{"dtype":"I64","shape":[1],"data_offsets":[26,34]}}   )",
          34),
      file_of(R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", 2), file_of("{}", 0)};
}

std::vector<std::string> words() {
  return json_words({"dtype", "shape", "data_offsets", "__metadata__", "F32", "BF16", "F16", "I64",
                     "U8", "F8_E4M3", "BOOL"});
}

/// Tensors cover the bytes after the header, none twice.
std::function<void()> open(std::string_view input) {
  auto file = std::make_shared<SafetensorsFile>(in_memory(input));
  return [file, size = static_cast<Index>(input.size())] {
    Index bytes = 0;
    for (const StoredTensor& tensor : file->tensors()) {
      expect(tensor.offset >= 8 && tensor.offset + tensor.bytes <= size, "outside the file");
      expect(file->find(tensor.name) != nullptr, "a tensor that is not found");
      bytes += tensor.bytes;
      const bool numbers = tensor.type == "F32" || tensor.type == "F16" || tensor.type == "BF16";
      if (!numbers || tensor.shape.size() > 4) continue;
      const Tensor read = file->read(tensor.name);
      expect(read.elements() * static_cast<Index>(size_of(read.type())) == tensor.bytes,
             "another size");
    }
    expect(bytes <= size - 8, "bytes that belong to two");
  };
}

}  // namespace

const Target safetensors_target = {"safetensors", seeds, words, open};

}  // namespace rapt::fuzz
