#include "text/stages/word_cutter.h"

#include <algorithm>

#include "text/unicode/characters.h"

namespace rapt::detail {
namespace {

constexpr std::string_view gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

std::string_view pattern_of(Cut cut) {
  switch (cut) {
    case Cut::gpt2:
      return gpt2;
    case Cut::llama3:
      return llama3;
    case Cut::qwen2:
      return qwen2;
    case Cut::none:
      break;
  }
  return "";
}

WordCutter::WordCutter(Cut cut) : cut_(cut) {
  if (cut != Cut::none) pattern_ = TextPattern::expression(pattern_of(cut), "word cutter");
}

void WordCutter::for_each_word(std::string_view text,
                               const std::function<void(std::string_view word)>& visit) const {
  if (!pattern_) {
    if (!text.empty()) visit(text);
    return;
  }
  const auto word = [&](std::string_view part, bool) { visit(part); };
  while (!text.empty()) {
    const std::size_t valid = valid_length(text);
    pattern_->for_each(text.substr(0, valid), std::cref(word));
    if (valid < text.size()) visit(text.substr(valid, 1));
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
}

}  // namespace rapt::detail
