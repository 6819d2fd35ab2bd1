// Reads files that are a little different from good ones. Whatever they say, a reader answers or
// throws std::runtime_error, and takes no memory out of proportion to the file.
//
//   fuzz_formats [--seconds S] [--seed K]     at least 10,000 files of each kind
//
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <new>
#include <random>

#include "formats/safetensors_header.h"
#include "rapt/tokenizer.h"
#include "support/folder.h"
#include "support/tokenizers.h"
#include "train/manifest.h"

namespace {

std::atomic<long long> in_use{0}, peak{0};  // bytes of this program

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const long long now = in_use += static_cast<long long>(malloc_usable_size(memory));
  if (now > peak) peak = now;
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory != nullptr) in_use -= static_cast<long long>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace rapt::test {
namespace {

/// Bytes changed, parts cut out or doubled, and words put in that readers stumble over.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::string mutated(std::string text) {
    for (std::size_t times = 1 + below(4); times > 0; --times) mutate(text);
    return text;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  const std::string& word() {
    static const std::vector<std::string> words{"0",
                                                "-1",
                                                "1.5",
                                                "1e999",
                                                "18446744073709551615",
                                                "9223372036854775807",
                                                "4294967296",
                                                "\"\"",
                                                "[]",
                                                "{}",
                                                "null",
                                                "true",
                                                "\"\\ud800\"",
                                                "\xFF",
                                                "[[[[",
                                                "{\"a\":",
                                                ",",
                                                "]",
                                                "}",
                                                "\"dtype\":\"F32\",",
                                                "\"shape\":[2,3],",
                                                "\"BF16\"",
                                                "\"F4\"",
                                                "\"__metadata__\"",
                                                "\"a b\"",
                                                "\"ab\"",
                                                "\"type\"",
                                                "\"merges\""};
    return words[below(words.size())];
  }
  void mutate(std::string& text) {
    const std::size_t at = below(text.size() + 1), length = below(20);
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.insert(at, word());
        break;
      case 4:
        replace_value(text);
        break;
      default:
        if (below(8) == 0) text.resize(at);
    }
  }
  /// A word in the place of a number or a name.
  void replace_value(std::string& text) {
    const std::size_t at = text.find_first_of("0123456789\"", below(text.size() + 1));
    if (at == std::string::npos) return;
    const std::size_t end = text.find_first_of(",:]}", at);
    text.replace(at, end == std::string::npos ? end : end - at, word());
  }

  std::mt19937_64 random_;
};

/// A kind of file: a good one, and what is done with one that may be bad. What a reader answers is
/// checked there; an answer that is wrong is std::logic_error.
struct Kind {
  const char* name;
  std::string good;
  std::function<void(const std::string& text)> read;
  long long tables = 0;  // bytes that any file of the kind takes
  Index accepted = 0, refused = 0;
};

void expect(bool right, const char* what) {
  if (!right) throw std::logic_error(what);
}

Kind safetensors_kind() {
  const std::string good =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},)"
      R"("c":{"dtype":"U8","shape":[0,5],"data_offsets":[26,26]},)"
      R"("d":{"dtype":"I64","shape":[1],"data_offsets":[26,34]}}   )";
  return {"safetensors", good, [](const std::string& text) {
            Index bytes = 0;
            for (const auto& tensor : parse_safetensors_header(text, "fuzz", 8, 34).tensors) {
              expect(tensor.offset >= 8 && tensor.offset + tensor.bytes <= 42, "outside the file");
              bytes += tensor.bytes;
            }
            expect(bytes == 34, "bytes of nobody");
          }};
}

/// Whatever a file has become, ids are tokens.
Kind tokenizer_kind(const char* name, const TemporaryFolder& folder, const Json& file) {
  const std::string path = folder / std::string(name);
  return {name, file.dump(), [path](const std::string& text) {
            put(path, text);
            const Tokenizer tokenizer = Tokenizer::read(path);
            const EncodeOptions special{.special = true};
            for (const char* sample : {"ab A\u0301b [SEP] <l>", "\xFF\xE6 \u65e5 aaaab", ""}) {
              const Encoding encoding = tokenizer.encode_pair(sample, "bab", special);
              expect(encoding.ids.size() == encoding.types.size(), "ids without types");
              for (const std::int32_t id : encoding.ids)
                expect(id >= 0 && id < tokenizer.entries(), "an id that is no token");
              tokenizer.decode(encoding.ids, {.special = true});
            }
          }};
}

Json bytes_file(const TemporaryFolder& folder) {
  const std::vector<std::string> texts{"abab abab ab <|endoftext|> 12 12 12"};
  Tokenizer::learn(texts, 270).write(folder / "learnt");
  return Json::parse(get(folder / "learnt"));
}

Json unigram_file() {
  return {
      {"added_tokens", Json::array({added_token(0, "<unk>", true), added_token(7, "<l>", false)})},
      {"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", table_of_one()}}},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "\u2581"}}},
      {"decoder", {{"type", "Metaspace"}, {"replacement", "\u2581"}}},
      {"model",
       {{"type", "Unigram"},
        {"unk_id", 0},
        {"vocab",
         Json::array({Json::array({"<unk>", 0}), Json::array({"\u2581", -3.0}),
                      Json::array({"a", -2.0}), Json::array({"b", -2.0}), Json::array({"ab", -5.0}),
                      Json::array({"bab", -4.0}), Json::array({"[", -4.0})})}}}};
}

Json word_piece_file() {
  return {{"added_tokens", Json::array({added_token(1, "[SEP]", true)})},
          {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor",
           {{"type", "BertProcessing"}, {"sep", {"[SEP]", 1}}, {"cls", {"[SEP]", 1}}}},
          {"decoder", {{"type", "WordPiece"}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"vocab", vocabulary_of({"[UNK]", "[SEP]", "a", "##b", "b", "ab", "##ab"})}}}};
}

Json bpe_file() {
  return {{"added_tokens", Json::array({added_token(0, "<unk>", true)})},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "NFKC"}},
              {{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", "_"}}}}}},
          {"pre_tokenizer",
           {{"type", "Split"},
            {"pattern", {{"Regex", "_?\\p{L}+|[^\\s\\p{L}]"}}},
            {"behavior", "Isolated"},
            {"invert", false}}},
          {"decoder",
           {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"byte_fallback", true},
            {"fuse_unk", true},
            {"vocab", vocabulary_of({"<unk>", "a", "b", "ab", "_", "_ab", "<0xE6>", "<0x97>"})},
            {"merges", {"a b", "_ ab"}}}}};
}

/// Under a hash that is right: otherwise no mutant would get past it.
Kind manifest_kind() {
  const std::string whole = text_of({.step = 3,
                                     .files = {{"a.safetensors", {.bytes = 10, .hash = {1, 2}}}},
                                     .state = {{"seed", 1}}});
  const std::string body = whole.substr(54, whole.size() - 56);
  return {"manifest", body, [](const std::string& text) {
            const std::string hash = hash_of(std::as_bytes(std::span(text))).text();
            const std::string file = "{\"hash\":\"" + hash + "\",\"manifest\":" + text + "}\n";
            expect(parse_manifest(file, "fuzz").step >= 0, "a negative step");
          }};
}

/// The most memory that was in use beyond what was before.
long long peak_of(const Kind& kind, const std::string& text) {
  const long long before = in_use;
  peak = before;
  kind.read(text);
  return peak - before;
}

/// Reads one mutant; the peak is that of the refusal, too.
void try_mutant(Kind& kind, std::uint64_t seed) {
  const std::string text = Mutator(seed).mutated(kind.good);
  const long long before = in_use;
  peak = before;
  try {
    kind.read(text);
    ++kind.accepted;
  } catch (const std::runtime_error&) {
    ++kind.refused;
  }
  const long long allowed = 4 * static_cast<long long>(text.size()) + kind.tables;
  expect(peak - before <= allowed, "more memory than four times the file");
}

int fuzz(double seconds, std::uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const TemporaryFolder folder;
  std::vector<Kind> kinds{safetensors_kind(),
                          tokenizer_kind("bytes", folder, bytes_file(folder)),
                          tokenizer_kind("unigram", folder, unigram_file()),
                          tokenizer_kind("word pieces", folder, word_piece_file()),
                          tokenizer_kind("bpe", folder, bpe_file()),
                          manifest_kind()};
  for (Kind& kind : kinds) kind.tables = peak_of(kind, kind.good) + (1 << 16);
  for (std::uint64_t done = 0; done < 10'000 || Clock::now() < end; ++done)
    for (Kind& kind : kinds) {
      try {
        try_mutant(kind, seed + done);
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

}  // namespace
}  // namespace rapt::test

int main(int count, char** words) try {
  double seconds = 10;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::string(words[i]) == "--seconds") seconds = std::stod(words[i + 1]);
    if (std::string(words[i]) == "--seed") seed = std::stoull(words[i + 1]);
  }
  return rapt::test::fuzz(seconds, seed);
} catch (const std::exception& error) {
  std::cerr << "fuzz_formats: " << error.what() << '\n';
  return 2;
}
