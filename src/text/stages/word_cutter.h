#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "text/stages/text_pattern.h"

namespace rapt::detail {

/// Ways to split text into words that have a name.
enum class Cut {
  none,    // the text is one word
  gpt2,    // what ByteLevel does without other steps
  llama3,  // numbers in threes, line ends together
  qwen2,   // the same with single digits
};

/// The expression as tokenizer files spell it; empty for Cut::none.
std::string_view pattern_of(Cut cut);

/// Splits text into words, in linear time. The words together are the text; an invalid byte is a
/// word of its own.
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

}  // namespace rapt::detail
