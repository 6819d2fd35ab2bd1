#include "families/gguf/gguf_model.h"
#include "fuzz/target.h"
#include "fuzz/tokenizer_use.h"
#include "support/gguf_bytes.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

std::vector<std::string> seeds() {
  const auto begin = [](std::uint64_t entries, const char* model) {
    test::GgufBytes b;
    b.begin(0, entries).text_entry("tokenizer.ggml.model", model);
    return b;
  };
  std::vector<std::string> made;
  made.push_back(
      begin(5, "llama")
          .texts_entry("tokenizer.ggml.tokens",
                       {"<unk>", "<s>", "</s>", "<0xE6>", "\u2581", "a", "b", "ab"})
          .list_entry<float>("tokenizer.ggml.scores", 6, {0, 0, 0, 0, -1, -2, -3, -4})
          .list_entry<std::int32_t>("tokenizer.ggml.token_type", 5, {2, 3, 3, 6, 1, 1, 1, 1})
          .entry<std::uint32_t>("tokenizer.ggml.bos_token_id", 4, 1)
          .bytes());
  made.push_back(begin(6, "gpt2")
                     .text_entry("tokenizer.ggml.pre", "smollm")
                     .texts_entry("tokenizer.ggml.tokens", {"a", "b", "ab", "\u0120", "<|end|>"})
                     .texts_entry("tokenizer.ggml.merges", {"a b"})
                     .list_entry<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 1, 3})
                     .entry<std::uint8_t>("tokenizer.ggml.add_bos_token", 7, 0)
                     .bytes());
  for (const char* pre : {"deepseek-llm", "falcon", "tekken"})  // with tokens of no letters
    made.push_back(begin(5, "gpt2")
                       .text_entry("tokenizer.ggml.pre", pre)
                       .texts_entry("tokenizer.ggml.tokens", {"", "a", "b", "ab", "", "\u00C3"})
                       .texts_entry("tokenizer.ggml.merges", {"a b", "a "})
                       .list_entry<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 1, 3, 1})
                       .bytes());
  made.push_back(begin(4, "bert")
                     .texts_entry("tokenizer.ggml.tokens",
                                  {"[UNK]", "[CLS]", "[SEP]", "\u2581a", "b", "\u2581ab"})
                     .entry<std::uint32_t>("tokenizer.ggml.unknown_token_id", 4, 0)
                     .entry<std::uint32_t>("tokenizer.ggml.cls_token_id", 4, 1)
                     .bytes());
  return made;
}

std::vector<std::string> words() {
  std::vector<std::string> made;
  for (const char* key :
       {"model", "pre", "tokens", "merges", "scores", "token_type", "bos_token_id", "eos_token_id",
        "unknown_token_id", "add_space_prefix", "normalizer.lowercase", "normalizer.strip_accents"})
    made.push_back("tokenizer.ggml." + std::string(key));
  for (const char* word : {"llama", "gpt2", "bert", "llama-bpe", "qwen2", "deepseek-coder",
                           "falcon", "starcoder", "gpt-4o", "bloom", "a b", "<0x41>"})
    made.emplace_back(word);
  return made;
}

std::function<void()> open(std::string_view input) {
  const GgufHeader header =
      read_gguf_header({"fuzz", static_cast<Index>(input.size()),
                        [input](Index offset, std::span<std::byte> buffer) {
                          std::copy_n(reinterpret_cast<const std::byte*>(input.data()) + offset,
                                      buffer.size(), buffer.data());
                        }});
  const Tokenizer tokenizer = gguf_tokenizer(header.metadata, "fuzz");
  return [tokenizer] { use_tokenizer(tokenizer, "ab A\u0301b <s> \xFF\xE6 \u65e5 aaaab"); };
}

}  // namespace

const Target gguf_tokenizer_target = {"gguf_tokenizer", seeds, words, open};

}  // namespace rapt::fuzz
