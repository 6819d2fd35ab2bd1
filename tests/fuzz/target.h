#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rapt::fuzz {

/// A parser and what it is fed with. Whatever the bytes are, it answers or throws
/// std::runtime_error; an answer that is wrong is std::logic_error.
struct Target {
  const char* name;
  /// Good inputs.
  std::vector<std::string> (*seeds)();
  /// Parts of inputs that a parser looks for.
  std::vector<std::string> (*words)();
  /// Parses. The memory it takes is counted: it may be four times the input's and what any input
  /// needs. What is returned reads on, uncounted, through all that was accepted.
  std::function<void()> (*open)(std::string_view input);
  /// Bytes that may be taken beyond that, because something else bounds them.
  long long extra_bytes = 0;
  /// Nothing is refused.
  bool takes_all = false;
};

inline void expect(bool right, const char* what) {
  if (!right) throw std::logic_error(what);
}

/// What is a mistake of the user elsewhere is a refusal here.
template <class Work>
auto refused_or(const Work& work) {
  try {
    return work();
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(error.what());
  }
}

/// For those that have nothing to read on.
inline std::function<void()> nothing_more() {
  return [] {};
}

std::vector<std::string> no_words();
/// Numbers and brackets that readers of JSON stumble over.
std::vector<std::string> json_words(std::vector<std::string> more);

extern const Target attention_pattern_target, chat_target, config_target, gguf_target,
    gguf_model_target, gguf_tokenizer_target, manifest_target, metrics_target, pairs_target,
    pattern_target, safetensors_target, sentence_target, shards_target, text_target,
    tokenizer_target, toml_target;

/// All there are.
std::vector<const Target*> all_targets();

}  // namespace rapt::fuzz
