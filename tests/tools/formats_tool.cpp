// For tests/oracles/test_gguf.py and test_npy.py.
//   formats_tool list FILE             prints name, type and shape of every tensor of a GGUF file
//   formats_tool keys FILE             prints its keys, and how many items they have
//   formats_tool dump FILE OUT         writes the numbers of its tensors as f32, by their names
//   formats_tool quantized FILE OUT    the same of its matrices, which go through QuantizedMatrix
//   formats_tool npy FILE OUT          writes an array as f32 or i64; several of an archive (.npz)
#include <fstream>
#include <iostream>

#include "formats/tensors/gguf_quantized.h"
#include "formats/tensors/npy.h"

namespace {

void write(std::ofstream& out, const rapt::Tensor& numbers) {
  out.write(static_cast<const char*>(numbers.memory()), numbers.elements() * 4);
}

void dump(const rapt::GgufFile& file, std::ofstream out) {
  for (const rapt::GgufTensor& tensor : file.tensors()) write(out, file.read(tensor.name));
}

void dump_quantized(const rapt::GgufFile& file, std::ofstream out) {
  for (const rapt::GgufTensor& tensor : file.tensors())
    if (tensor.shape.rank() == 2)
      write(out, rapt::read_quantized(file, std::span(&tensor.name, 1)).expanded());
}

void dump_array(const rapt::NpyFile& file, std::ofstream& out) {
  if (file.header().type < rapt::NpyType::i32) return write(out, file.read());
  const std::vector<rapt::Index> numbers = file.read_integers();
  out.write(reinterpret_cast<const char*>(numbers.data()),
            static_cast<std::streamsize>(numbers.size() * sizeof(rapt::Index)));
}

void run(const std::string& verb, const std::string& path, const std::string& to) {
  if (verb == "list") {
    const rapt::GgufFile file(path);
    for (const rapt::GgufTensor& tensor : file.tensors())
      std::cout << tensor.name << ' ' << tensor.format->name << ' ' << tensor.shape.text() << '\n';
  } else if (verb == "keys") {
    const rapt::GgufFile file(path);
    for (const std::string_view key : file.metadata().keys())
      std::cout << key << ' ' << file.metadata().find(key)->count << '\n';
  } else if (verb == "dump") {
    dump(rapt::GgufFile(path), std::ofstream(to, std::ios::binary));
  } else if (verb == "quantized") {
    dump_quantized(rapt::GgufFile(path), std::ofstream(to, std::ios::binary));
  } else {
    std::ofstream out(to, std::ios::binary);
    if (!path.ends_with(".npz")) return dump_array(rapt::NpyFile(path), out);
    for (const rapt::NpyFile& file : rapt::open_npz(path)) dump_array(file, out);
  }
}

}  // namespace

int main(int count, char** words) try {
  if (count < 3) {
    std::cerr << "formats_tool: see the beginning of its source\n";
    return 2;
  }
  run(words[1], words[2], count > 3 ? words[3] : "");
  return 0;
} catch (const std::exception& error) {
  std::cerr << "formats_tool: " << error.what() << '\n';
  return 1;
}
