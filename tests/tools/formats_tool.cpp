// For tests/oracles/pretrained/test_gguf.py.
//   formats_tool list FILE             prints name, type and shape of every tensor of a GGUF file
//   formats_tool keys FILE             prints its keys, and how many items they have
//   formats_tool dump FILE OUT         writes the numbers of its tensors as f32, by their names
//   formats_tool quantized FILE OUT    the same of its matrices, which go through QuantizedMatrix
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "formats/tensors/gguf_quantized.h"

namespace {

void write(std::ofstream& out, const rapt::Tensor& numbers) {
  out.write(static_cast<const char*>(numbers.memory()), numbers.elements() * 4);
}

void dump(const rapt::detail::GgufFile& file, std::ofstream out) {
  for (const rapt::detail::GgufTensor& tensor : file.tensors()) write(out, file.read(tensor.name));
}

void dump_quantized(const rapt::detail::GgufFile& file, std::ofstream out) {
  for (const rapt::detail::GgufTensor& tensor : file.tensors())
    if (tensor.shape.rank() == 2)
      write(out, rapt::detail::read_quantized(file, std::span(&tensor.name, 1)).dequantize());
}

void run(const std::string& verb, const std::string& path, const std::string& to) {
  if (verb == "list") {
    const rapt::detail::GgufFile file(path);
    for (const rapt::detail::GgufTensor& tensor : file.tensors())
      std::cout << tensor.name << ' ' << tensor.format->name << ' ' << to_string(tensor.shape)
                << '\n';
  } else if (verb == "keys") {
    const rapt::detail::GgufFile file(path);
    for (const std::string_view key : file.metadata().keys())
      std::cout << key << ' ' << file.metadata().find(key)->count << '\n';
  } else if (verb == "dump") {
    dump(rapt::detail::GgufFile(path), std::ofstream(to, std::ios::binary));
  } else if (verb == "quantized") {
    dump_quantized(rapt::detail::GgufFile(path), std::ofstream(to, std::ios::binary));
  } else {
    throw std::invalid_argument(verb + " given, expected list, keys, dump or quantized");
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
