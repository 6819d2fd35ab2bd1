#include "formats/word_cutter.h"

#include <pcre2.h>

#include <new>
#include <stdexcept>
#include <string>

#include "formats/byte_letters.h"

namespace rapt {
namespace {

constexpr std::string_view gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Unicode's white space, which is not quite what PCRE calls \s.
constexpr std::string_view spaces =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

/// The expression with \s and \S spelled out, inside of a class and outside of one.
std::string spelled_out(std::string_view pattern) {
  std::string result;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char letter = pattern[i];
    if (letter == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's' && in_class)
        result += spaces;
      else if (next == 's' || next == 'S')
        result += (next == 's' ? "[" : "[^") + std::string(spaces) + "]";
      else
        result += std::string{letter, next};
      continue;
    }
    if (letter == '[') in_class = true;
    if (letter == ']') in_class = false;
    result += letter;
  }
  return result;
}

std::shared_ptr<const void> compiled(std::string_view pattern) {
  const std::string text = spelled_out(pattern);
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_UTF, &error, &place, nullptr);
  if (code == nullptr) throw std::bad_alloc();  // our own patterns are right
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a compiler it is interpreted
  return {code, [](const void* p) {
            pcre2_code_free(const_cast<pcre2_code*>(static_cast<const pcre2_code*>(p)));
          }};
}

/// Words of a text that is valid UTF-8.
class Cutting {
 public:
  explicit Cutting(const pcre2_code* code)
      : code_(code), match_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free) {
    if (!match_) throw std::bad_alloc();
  }

  void run(std::string_view text, const std::function<void(std::string_view)>& visit) const {
    for (std::size_t at = 0; at < text.size();) {
      const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                    at, PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, match_.get(), nullptr);
      if (found < 0)
        throw std::runtime_error("tokenizer: text cannot be cut into words, PCRE2 error " +
                                 std::to_string(found));
      const std::size_t end = pcre2_get_ovector_pointer(match_.get())[1];
      visit(text.substr(at, end - at));
      at = end;
    }
  }

 private:
  const pcre2_code* code_;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match_;
};

/// How far the text is valid UTF-8.
std::size_t valid_length(std::string_view text) {
  std::size_t length = 0;
  while (const std::size_t step = valid_character(text.substr(length))) length += step;
  return length;
}

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

std::optional<Cut> cut_of_pattern(std::string_view pattern) {
  for (const Cut cut : {Cut::gpt2, Cut::llama3, Cut::qwen2})
    if (pattern == pattern_of(cut)) return cut;
  return std::nullopt;
}

WordCutter::WordCutter(Cut cut) : cut_(cut) {
  if (cut != Cut::none) code_ = compiled(pattern_of(cut));
}

void WordCutter::for_each_word(std::string_view text,
                               const std::function<void(std::string_view word)>& visit) const {
  if (cut_ == Cut::none) {
    if (!text.empty()) visit(text);
    return;
  }
  const Cutting cutting(static_cast<const pcre2_code*>(code_.get()));
  while (!text.empty()) {
    const std::size_t valid = valid_length(text);
    cutting.run(text.substr(0, valid), visit);
    if (valid < text.size()) visit(text.substr(valid, 1));
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
}

}  // namespace rapt
