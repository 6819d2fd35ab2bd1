#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

namespace rapt {

/// The ways of cutting text into words that are known; a pattern from a file is looked up here and
/// never run, so no file can bring an expression that takes for ever.
enum class Cut {
  none,    // the text is one word
  gpt2,    // what ByteLevel does by itself
  llama3,  // numbers in threes, line ends together
  qwen2,   // the same with single digits
};

/// The expression as tokenizer files spell it; empty for Cut::none.
std::string_view pattern_of(Cut cut);
/// Nothing if no cut is spelled so.
std::optional<Cut> cut_of_pattern(std::string_view pattern);

/// Cuts text into words, in time that grows with its length. The words together are the text; a
/// byte that is not UTF-8 is a word of its own.
class WordCutter {
 public:
  explicit WordCutter(Cut cut);

  Cut cut() const { return cut_; }
  void for_each_word(std::string_view text,
                     const std::function<void(std::string_view word)>& visit) const;

 private:
  Cut cut_;
  std::shared_ptr<const void> code_;  // compiled, and shared between threads
};

}  // namespace rapt
