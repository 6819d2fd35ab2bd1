#include <memory>
#include <span>

#include "formats/tensors/gguf_header.h"
#include "fuzz/target.h"
#include "support/gguf_bytes.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

using test::GgufBytes;

std::vector<std::string> seeds() {
  GgufBytes b;
  b.begin(4, 6).text_entry("general.architecture", "llama");
  b.entry<std::uint32_t>("general.alignment", 4, 32).entry<float>("f", 6, 1.5f);
  b.texts_entry("tokens", {"a", "", "bc"}).list_entry<std::int32_t>("types", 5, {1, 2, 3});
  b.entry<std::uint8_t>("yes", 7, 1);
  b.tensor("a", {2, 3}, 0, 0).tensor("b", {32, 2}, 3, 32).tensor("c", {256}, 14, 96);
  b.tensor("d", {32, 1}, 8, 320).pad().raw(std::string(24, '\1')).pad();
  b.raw(std::string(40, '\3')).pad().raw(std::string(210, '\2')).pad().raw(std::string(34, '\5'));
  GgufBytes blocks;
  const std::pair<std::uint32_t, std::size_t> types[] = {
      {2, 18}, {6, 22}, {7, 24}, {10, 84}, {11, 110}, {12, 144}, {13, 176}, {15, 292}};
  blocks.begin(std::size(types), 1, 2).entry<std::uint64_t>("general.alignment", 10, 8);
  std::uint64_t offset = 0;
  std::string numbers;
  for (const auto& [type, bytes] : types) {
    const std::uint64_t width = type < 10 ? 32 : 256;
    blocks.tensor(std::string(1, static_cast<char>('a' + type)), {width}, type, offset);
    offset += (bytes + 7) / 8 * 8;
    numbers += std::string(bytes, '\1') + std::string((8 - bytes % 8) % 8, '\0');
  }
  blocks.pad(8).raw(numbers);
  return {b.bytes(), blocks.bytes(), GgufBytes().begin(0, 0).bytes()};
}

std::vector<std::string> words() {
  const auto number = [](auto x) {
    return std::string(reinterpret_cast<const char*>(&x), sizeof x);
  };
  return {"GGUF",
          "general.alignment",
          number(std::uint32_t{9}),
          number(std::uint64_t{1}),
          number(~std::uint64_t{0}),
          number(std::uint64_t{1} << 63),
          number(std::uint64_t{1} << 32),
          number(std::uint32_t{8}),
          number(std::uint32_t{32})};
}

/// Everything a header says, in every way it can be asked for.
void ask(const GgufMetadata& metadata) {
  for (const std::string_view key : metadata.keys()) {
    int answers = 0;
    const auto asked = [&](auto question) {
      try {
        question();
        ++answers;
      } catch (const std::runtime_error&) {
        return;  // not as what it is
      }
    };
    asked([&] { metadata.integer(key); });
    asked([&] { metadata.number(key); });
    asked([&] { metadata.boolean(key); });
    asked([&] { metadata.text(key); });
    asked([&] { metadata.integers(key); });
    asked([&] { metadata.numbers(key); });
    asked([&] { metadata.texts(key); });
    expect(answers <= 2, "a value of three types");
  }
}

/// Every block of every tensor.
void expand(const GgufHeader& header, std::string_view input) {
  for (const GgufTensor& tensor : header.tensors) {
    expect(tensor.bytes > 0 && tensor.shape.elements() > 0, "an empty tensor");
    const auto end = static_cast<std::size_t>(tensor.offset + tensor.bytes);
    expect(tensor.offset > 0 && end <= input.size(), "a tensor outside of the file");
    if (tensor.format->expand == nullptr) continue;
    std::vector<float> numbers(static_cast<std::size_t>(tensor.format->numbers));
    for (Index at = tensor.offset; at < tensor.offset + tensor.bytes; at += tensor.format->bytes)
      tensor.format->expand(reinterpret_cast<const std::byte*>(input.data()) + at, numbers.data());
  }
}

std::function<void()> open(std::string_view input) {
  const auto header = std::make_shared<GgufHeader>(
      read_gguf_header({"fuzz", static_cast<Index>(input.size()),
                        [input](Index offset, std::span<std::byte> buffer) {
                          const auto at = static_cast<std::size_t>(offset);
                          const auto* bytes = reinterpret_cast<const std::byte*>(input.data());
                          expect(at + buffer.size() <= input.size(), "read beyond the file");
                          std::copy_n(bytes + at, buffer.size(), buffer.data());
                        }}));
  return [header, input] {
    ask(header->metadata);
    expand(*header, input);
  };
}

}  // namespace

const Target gguf_target = {"gguf", seeds, words, open};

}  // namespace rapt::fuzz
