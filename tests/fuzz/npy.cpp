#include "formats/tensors/npy.h"

#include <cstdint>

#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace rapt::fuzz {
namespace {

std::string npy_of(const std::string& type, const std::string& order, const std::string& shape,
                   std::size_t bytes) {
  const std::string dictionary =
      "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  std::string out("\x93NUMPY\1\0", 8);
  out += static_cast<char>(dictionary.size());
  return out + '\0' + dictionary + std::string(bytes, '\1');
}

std::vector<std::string> arrays() {
  return {npy_of("<f4", "True", "(2, 3)", 24), npy_of("<f8", "False", "(3,)", 24),
          npy_of("<f2", "False", "(2, 1, 3, 1)", 12), npy_of("<i4", "True", "(2, 2, 2)", 32),
          npy_of("<i8", "False", "()", 8)};
}

std::vector<std::string> npy_words() {
  return {"'descr': ",
          "'fortran_order': ",
          "'shape': ",
          "True",
          "False",
          "'<f4'",
          "'<f8'",
          "'<f2'",
          "'<i4'",
          "'<i8'",
          "(",
          ",)",
          "(0, 18446744073709551615)",
          "4294967296",
          "\x93NUMPY",
          "9223372036854775807"};
}

void read(const NpyFile& file) {
  if (file.header().type >= NpyType::i32)
    expect(static_cast<Index>(file.read_integers().size()) == file.header().elements,
           "another number of numbers");
  else
    expect(file.read().elements() == file.header().elements, "another number of numbers");
}

std::function<void()> open_npy_input(std::string_view input) {
  const auto file = std::make_shared<NpyFile>(in_memory(input));
  return [file] { read(*file); };
}

template <class T>
std::string number(T x) {
  return std::string(reinterpret_cast<const char*>(&x), sizeof x);
}

/// As numpy.savez writes it.
std::string archive(const std::vector<std::string>& contents) {
  std::string file, list;
  for (const std::string& array : contents) {
    const auto size = static_cast<std::uint32_t>(array.size());
    const auto offset = static_cast<std::uint32_t>(file.size());
    const std::string name = std::string(1, static_cast<char>('a' + offset % 26)) + ".npy";
    const auto length = static_cast<std::uint16_t>(name.size());
    file +=
        "PK\3\4" + std::string(22, '\0') + number(length) + number(std::uint16_t{0}) + name + array;
    list += "PK\1\2" + std::string(16, '\0') + number(size) + number(size) + number(length) +
            std::string(12, '\0') + number(offset) + name;
  }
  const auto count = static_cast<std::uint16_t>(contents.size());
  const auto offset = static_cast<std::uint32_t>(file.size());
  return file + list + "PK\5\6" + std::string(4, '\0') + number(count) + number(count) +
         number(static_cast<std::uint32_t>(list.size())) + number(offset) +
         number(std::uint16_t{0});
}

std::vector<std::string> archives() {
  const std::vector<std::string> some = arrays();
  return {archive({some[0]}), archive({some[0], some[3]}), archive({})};
}

std::vector<std::string> npz_words() {
  std::vector<std::string> words = npy_words();
  for (const char* word : {"PK\1\2", "PK\3\4", "PK\5\6", ".npy"}) words.emplace_back(word);
  return words;
}

std::function<void()> open_npz_input(std::string_view input) {
  const auto files = std::make_shared<std::vector<NpyFile>>(open_npz(in_memory(input)));
  return [files] {
    for (const NpyFile& file : *files) read(file);
  };
}

}  // namespace

const Target npy_target = {"npy", arrays, npy_words, open_npy_input};
const Target npz_target = {"npz", archives, npz_words, open_npz_input};

}  // namespace rapt::fuzz
