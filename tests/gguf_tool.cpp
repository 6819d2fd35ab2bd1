// For tests/oracles/test_gguf.py.
//   gguf_tool list FILE           prints name, type and shape of every tensor
//   gguf_tool keys FILE           prints the keys, and how many items they have
//   gguf_tool dump FILE OUT       writes the numbers of all tensors as f32, in order of their names
#include <fstream>
#include <iostream>

#include "formats/gguf.h"

namespace {

void dump(const rapt::GgufFile& file, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  for (const rapt::GgufTensor& tensor : file.tensors()) {
    const rapt::Tensor numbers = file.read(tensor.name);
    out.write(static_cast<const char*>(numbers.memory()), numbers.elements() * 4);
  }
}

}  // namespace

int main(int count, char** words) try {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.size() == 2 && arguments[0] == "list") {
    const rapt::GgufFile file(arguments[1]);
    for (const rapt::GgufTensor& tensor : file.tensors())
      std::cout << tensor.name << ' ' << tensor.format->name << ' ' << tensor.shape.text() << '\n';
  } else if (arguments.size() == 2 && arguments[0] == "keys") {
    const rapt::GgufFile file(arguments[1]);
    for (const std::string_view key : file.metadata().keys())
      std::cout << key << ' ' << file.metadata().find(key)->count << '\n';
  } else if (arguments.size() == 3 && arguments[0] == "dump") {
    dump(rapt::GgufFile(arguments[1]), arguments[2]);
  } else {
    std::cerr << "gguf_tool: see the beginning of its source\n";
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "gguf_tool: " << error.what() << '\n';
  return 1;
}
