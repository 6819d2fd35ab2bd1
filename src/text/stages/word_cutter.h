#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "text/stages/text_pattern.h"

namespace rapt {

/// Ways of cutting text into words that have a name.
enum class Cut {
  none,    // the text is one word
  gpt2,    // what ByteLevel does by itself
  llama3,  // numbers in threes, line ends together
  qwen2,   // the same with single digits
};

/// The expression as tokenizer files spell it; empty for Cut::none.
std::string_view pattern_of(Cut cut);

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
  std::optional<TextPattern> pattern_;
};

}  // namespace rapt
