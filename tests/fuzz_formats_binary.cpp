// Reads GGUF files, .npy files and .npz archives that are a little different from good ones.
// Whatever they say, a reader answers or throws std::runtime_error, and takes no memory out of
// proportion to the file. What a reader accepts is read to its end.
//
//   fuzz_formats_binary [--seconds S] [--seed K]     at least 10,000 files of each kind
//
// With RAPT_LIBFUZZER the same files come from libFuzzer; the first byte says of which kind.
#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>

#include "formats/gguf_quantized.h"
#include "formats/npy.h"
#include "support/folder.h"
#include "support/gguf.h"
#ifndef RAPT_LIBFUZZER
#include "support/heap_peak.h"
#endif

namespace rapt::test {
namespace {

void expect(bool right, const char* what) {
  if (!right) throw std::logic_error(what);
}

/// Everything a header says, in every way it can be asked for.
void ask(const GgufMetadata& metadata) {
  for (const std::string_view key : metadata.keys()) {
    const std::function<void()> questions[] = {
        [&] { metadata.integer(key); },  [&] { metadata.number(key); },
        [&] { metadata.boolean(key); },  [&] { metadata.text(key); },
        [&] { metadata.integers(key); }, [&] { metadata.numbers(key); },
        [&] { metadata.texts(key); }};
    int answers = 0;
    for (const auto& question : questions) {
      try {
        question();
        ++answers;
      } catch (const std::runtime_error&) {
        continue;  // not as what it is
      }
    }
    expect(answers <= 2, "a value of three types");
  }
}

void read_tensors(const GgufFile& file) {
  for (const GgufTensor& tensor : file.tensors()) {
    expect(tensor.bytes > 0 && tensor.shape.elements() > 0, "an empty tensor");
    if (tensor.format->expand == nullptr) continue;
    const Tensor numbers = file.read(tensor.name);
    expect(numbers.shape() == tensor.shape, "another shape");
    if (tensor.shape.rank() != 2) continue;
    try {
      const std::string names[] = {tensor.name};
      expect(read_quantized(file, names, Context(1)).shape() == tensor.shape, "another shape");
    } catch (const std::runtime_error&) {
      continue;  // numbers that are not finite
    }
  }
}

std::string good_gguf() {
  GgufBytes b;
  b.begin(4, 6).text_entry("general.architecture", "llama");
  b.entry<std::uint32_t>("general.alignment", 4, 32).entry<float>("f", 6, 1.5f);
  b.texts_entry("tokens", {"a", "", "bc"}).list_entry<std::int32_t>("types", 5, {1, 2, 3});
  b.entry<std::uint8_t>("yes", 7, 1);
  b.tensor("a", {2, 3}, 0, 0).tensor("b", {32, 2}, 3, 32).tensor("c", {256}, 14, 96);
  b.tensor("d", {32, 1}, 8, 320).pad().raw(std::string(24, '\1')).pad();
  b.raw(std::string(40, '\3')).pad().raw(std::string(210, '\2')).pad().raw(std::string(34, '\5'));
  return b.bytes();
}

std::string good_npy() {
  const std::string dictionary = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n";
  std::string out("\x93NUMPY\1\0", 8);
  out += static_cast<char>(dictionary.size());
  return out + '\0' + dictionary + std::string(24, '\1');
}

std::string good_npz() {
  const std::string array = good_npy();
  const auto number = [](auto x) {
    return std::string(reinterpret_cast<const char*>(&x), sizeof x);
  };
  const auto size = static_cast<std::uint32_t>(array.size());
  std::string file = "PK\3\4" + std::string(22, '\0') + number(std::uint16_t{5}) +
                     number(std::uint16_t{0}) + "a.npy" + array;
  const auto offset = static_cast<std::uint32_t>(file.size());
  const std::string entry = "PK\1\2" + std::string(16, '\0') + number(size) + number(size) +
                            number(std::uint16_t{5}) + std::string(16, '\0') + "a.npy";
  return file + entry + "PK\5\6" + std::string(4, '\0') + number(std::uint16_t{1}) +
         number(std::uint16_t{1}) + number(static_cast<std::uint32_t>(entry.size())) +
         number(offset) + number(std::uint16_t{0});
}

void read_array(const NpyFile& file) {
  try {
    file.read();
  } catch (const std::runtime_error&) {
    file.read_integers();
  }
}

/// A kind of file: a good one; opening it, whose memory is counted; and reading on.
struct Kind {
  const char* name;
  std::string good;
  std::function<std::function<void()>(const std::string& path)> open;
  long long tables = 0;  // bytes that any file of the kind takes
  Index accepted = 0, refused = 0;
};

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds(3);
  kinds[0] = {"GGUF", good_gguf(), [](const std::string& path) -> std::function<void()> {
                const auto file = std::make_shared<GgufFile>(path);
                return [file] {
                  ask(file->metadata());
                  read_tensors(*file);
                };
              }};
  kinds[1] = {"npy", good_npy(), [](const std::string& path) -> std::function<void()> {
                const auto file = std::make_shared<NpyFile>(path);
                return [file] { read_array(*file); };
              }};
  kinds[2] = {"npz", good_npz(), [](const std::string& path) -> std::function<void()> {
                const auto files = std::make_shared<std::vector<NpyFile>>(open_npz(path));
                return [files] {
                  for (const NpyFile& file : *files) read_array(file);
                };
              }};
  return kinds;
}

#ifndef RAPT_LIBFUZZER

/// Bytes changed, parts cut out or doubled, and numbers put in that readers stumble over.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::string mutated(std::string bytes) {
    for (std::size_t times = 1 + below(4); times > 0; --times) mutate(bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  std::uint64_t number() {
    const std::uint64_t base = std::uint64_t{1} << below(64);
    return below(3) == 0 ? below(40) : base - below(3);
  }
  void mutate(std::string& bytes) {
    const std::size_t at = below(bytes.size() + 1), length = below(40);
    switch (below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes.erase(at, length);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 3: {
        const std::uint64_t x = number();
        const std::size_t size = std::size_t{1} << below(4);
        if (at + size <= bytes.size()) std::memcpy(bytes.data() + at, &x, size);
        break;
      }
      case 4:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        break;
      default:
        if (below(8) == 0) bytes.resize(at);
    }
  }

  std::mt19937_64 random_;
};

void try_mutant(Kind& kind, const std::string& path, std::uint64_t seed) {
  const std::string bytes = Mutator(seed).mutated(kind.good);
  put(path, bytes);
  const HeapPeak peak;
  try {
    const std::function<void()> read = kind.open(path);
    const long long allowed = 4 * static_cast<long long>(bytes.size()) + kind.tables;
    expect(peak.bytes() <= allowed, "more memory than four times the file");
    read();
    ++kind.accepted;
  } catch (const std::runtime_error&) {
    ++kind.refused;
  }
}

int fuzz(double seconds, std::uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  std::vector<Kind> kinds = all_kinds();
  for (Kind& kind : kinds) {
    put(path, kind.good);
    const HeapPeak peak;
    kind.open(path)();
    kind.tables = peak.bytes() + (1 << 16);
  }
  for (std::uint64_t done = 0; done < 10'000 || Clock::now() < end; ++done)
    for (Kind& kind : kinds) {
      try {
        try_mutant(kind, path, seed + done);
      } catch (const std::exception& error) {
        std::cerr << kind.name << ", seed " << seed + done << ": " << error.what() << '\n';
        return 1;
      }
    }
  for (const Kind& kind : kinds) {
    std::cout << kind.name << ": " << kind.accepted << " accepted, " << kind.refused
              << " refused\n";
    expect(kind.accepted > 100 && kind.refused > 1000, "mutants of one sort only");
  }
  return 0;
}

#endif

}  // namespace
}  // namespace rapt::test

#ifdef RAPT_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const rapt::test::TemporaryFolder folder;
  static const std::string path = folder / "file";
  static const std::vector<rapt::test::Kind> kinds = rapt::test::all_kinds();
  if (size == 0) return 0;
  rapt::test::put(path, {reinterpret_cast<const char*>(data + 1), size - 1});
  try {
    kinds[data[0] % kinds.size()].open(path)();
  } catch (const std::runtime_error&) {
    return 0;
  }
  return 0;
}
#else
int main(int count, char** words) try {
  double seconds = 10;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::string(words[i]) == "--seconds") seconds = std::stod(words[i + 1]);
    if (std::string(words[i]) == "--seed") seed = std::stoull(words[i + 1]);
  }
  return rapt::test::fuzz(seconds, seed);
} catch (const std::exception& error) {
  std::cerr << "fuzz_formats_binary: " << error.what() << '\n';
  return 2;
}
#endif
