#include "text/stages/text_pattern.h"

#include <pcre2.h>

#include <cctype>
#include <new>
#include <span>
#include <sstream>
#include <vector>

#include "base/io/check_input.h"
#include "text/unicode/unicode_later.h"

namespace rapt::detail {
namespace {

/// Bytes; the longest in use has 500. One byte may become a few kilobytes of ranges.
constexpr std::size_t longest_expression = 4'000;
/// Steps of one match. A long run of spaces takes one step per character, so this is large; a
/// runaway expression still ends within a second.
constexpr std::uint32_t most_steps = 100'000'000;
constexpr std::uint32_t most_memory = 256 << 10;  // KiB

// Classes spelled out, because PCRE's differ from those of the library the files were made with.
constexpr std::string_view space_class =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
const std::string digit_class = R"(\p{Nd})";
const std::string word_class = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE)";

std::string members_of(std::span<const CodeRange> ranges) {
  std::ostringstream members;
  members << std::hex;
  for (const auto& [first, last] : ranges)
    members << "\\x{" << static_cast<std::uint32_t>(first) << "}-\\x{"
            << static_cast<std::uint32_t>(last) << '}';
  return members.str();
}

/// Members of a Unicode category that an older PCRE2 does not know, as members of a class.
std::string later_members(std::string_view category) {
  // Built once: an expression asks for them at every \p{L}.
  static const std::vector<std::pair<std::string_view, std::string>> later = {
      {"Lu", members_of(later_Lu)}, {"Ll", members_of(later_Ll)}, {"Lm", members_of(later_Lm)},
      {"Lo", members_of(later_Lo)}, {"Mn", members_of(later_Mn)}, {"Mc", members_of(later_Mc)},
      {"Nd", members_of(later_Nd)}, {"No", members_of(later_No)}, {"Pd", members_of(later_Pd)},
      {"Po", members_of(later_Po)}, {"Sm", members_of(later_Sm)}, {"So", members_of(later_So)},
  };
  std::string all;
  for (const auto& [name, members] : later)
    if (!category.empty() && name.starts_with(category)) all += members;
  return all;
}

/// Translates an expression to PCRE2. Letters, classes, groups, lookaround, quantifiers,
/// alternatives and anchors mean the same; the rest is refused.
class Translation {
 public:
  Translation(std::string_view expression, const std::string& where)
      : rest_(expression), all_(expression), where_(where) {}

  std::string run() {
    while (!rest_.empty()) {
      if (rest_[0] == '\\')
        escape();
      else if (rest_.starts_with("[:"))
        refuse("[: in a class");
      else if (rest_.starts_with("(?"))
        group();
      else
        letter();
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail_input(where_, " has the expression ", printable(all_), ", in which ", what,
               " is not supported");
  }
  std::string_view take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  void letter() {
    const char next = rest_[0];
    if (depth_ > 0 && rest_.starts_with("&&")) refuse("&&");
    if (depth_ > 0 && next == '[') refuse("a class in a class");
    if (next == '[') {
      depth_ = 1;
      result_ += take(rest_.starts_with("[^") ? 2 : 1);
      if (rest_.starts_with("]")) refuse("an empty class");
      return;
    }
    if (next == ']') depth_ = 0;
    result_ += take(1);
  }
  void group() {
    if (depth_ > 0) return letter();
    for (const std::string_view start :
         {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i)"})
      if (rest_.starts_with(start)) {
        result_ += take(start.size());
        return;
      }
    refuse(std::string(rest_.substr(0, 3)));
  }
  void add_class(std::string_view members, bool inside_out) {
    if (depth_ == 0)
      result_ += (inside_out ? "[^" : "[") + std::string(members) + "]";
    else if (inside_out)
      refuse("the opposite of a class in a class");
    else
      result_ += members;
  }
  void escape() {
    if (rest_.size() < 2) refuse("a \\ at the end");
    const char next = rest_[1];
    switch (next) {
      case 's':
      case 'S':
        take(2);
        return add_class(space_class, next == 'S');
      case 'd':
      case 'D':
        take(2);
        return add_class(digit_class + later_members("Nd"), next == 'D');
      case 'w':
      case 'W':
        take(2);
        return add_class(word_class + later_members("L") + later_members("M") + later_members("Nd"),
                         next == 'W');
      case 'p':
      case 'P':
        return property();
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'v':
        result_ += next == 'v' ? "\\x0B" : std::string("\\") + next;
        take(2);
        return;
      case 'x':
        return hexadecimal();
      case 'u':
        return unicode();
      default:
        break;
    }
    const auto byte = static_cast<unsigned char>(next);
    if (std::isalnum(byte) != 0 || byte >= 0x80) refuse(std::string("\\") + next);
    result_ += take(2);
  }
  void property() {
    const std::size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == std::string_view::npos || end > 40)
      refuse("\\p without a name");
    const bool inside_out = rest_[1] == 'P' || rest_[3] == '^';
    const std::string later = later_members(rest_.substr(3, end - 3));
    const std::string whole(take(end + 1));
    if (later.empty() || inside_out)
      result_ += whole;
    else
      add_class(whole + later, false);
  }
  void hexadecimal() {
    const std::size_t end = rest_.starts_with("\\x{") ? rest_.find('}') : 3;
    if (end == std::string_view::npos || end > 12 || end >= rest_.size()) refuse("\\x");
    result_ += take(end + 1);
  }
  void unicode() {
    if (rest_.size() < 6) refuse("\\u");
    result_ += "\\x{" + std::string(rest_.substr(2, 4)) + "}";
    take(6);
  }

  std::string_view rest_, all_;
  const std::string& where_;
  std::string result_;
  int depth_ = 0;  // inside of a class
};

std::string message_of(int error) {
  std::string text(200, '\0');
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  return text.c_str();
}

std::shared_ptr<const void> compiled(const std::string& text, std::string_view expression,
                                     const std::string& where) {
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  check_input(code != nullptr, where, " has the expression ", printable(expression),
              ", which is not one: ", message_of(error));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a compiler it is interpreted
  return {code, [](const void* p) {
            pcre2_code_free(const_cast<pcre2_code*>(static_cast<const pcre2_code*>(p)));
          }};
}

struct Freed {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};

class Search {
 public:
  Search(const void* code, std::string_view text)
      : code_(static_cast<const pcre2_code*>(code)),
        text_(text),
        match_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (!match_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), most_steps);
    pcre2_set_heap_limit(context_.get(), most_memory);
  }
  /// The next match from a place on.
  bool next(std::size_t from) {
    const auto match = [&](std::uint32_t options) {
      return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), from,
                         options | PCRE2_NO_UTF_CHECK, match_.get(), context_.get());
    };
    int found = match(0);
    // Compiled expressions have a small stack.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    check_input(found > 0, "tokenizer: text cannot be searched with the tokenizer's expression: ",
                message_of(found));
    return true;
  }
  std::size_t begin() const { return pcre2_get_ovector_pointer(match_.get())[0]; }
  std::size_t end() const { return pcre2_get_ovector_pointer(match_.get())[1]; }

 private:
  const pcre2_code* code_;
  std::string_view text_;
  std::unique_ptr<pcre2_match_data, Freed> match_;
  std::unique_ptr<pcre2_match_context, Freed> context_;
};

}  // namespace

TextPattern TextPattern::letters(std::string letters) {
  TextPattern pattern;
  pattern.letters_ = std::move(letters);
  return pattern;
}

TextPattern TextPattern::expression(std::string_view expression, const std::string& where) {
  check_input(expression.size() <= longest_expression, where, " has an expression of ",
              expression.size(), " bytes, the limit is ", longest_expression);
  TextPattern pattern;
  pattern.code_ = compiled(Translation(expression, where).run(), expression, where);
  return pattern;
}

TextPattern TextPattern::read(const Json& part, const std::string& where) {
  check_input(part.is_object() && part.size() == 1 && part.front().is_string(), where,
              " is not an object with String or Regex");
  const std::string& text = part.front().get_ref<const std::string&>();
  const std::string& kind = part.begin().key();
  if (kind == "Regex") return expression(text, where);
  check_input(kind == "String", where, " is of the kind ", printable(kind),
              ", expected String or Regex");
  return letters(text);
}

void TextPattern::for_each(std::string_view text, const Visit& visit) const {
  std::size_t done = 0;
  const auto match = [&](std::size_t begin, std::size_t end) {
    if (begin > done) visit(text.substr(done, begin - done), false);
    visit(text.substr(begin, end - begin), true);
    done = end;
  };
  if (!code_) {
    while (!letters_.empty()) {
      const std::size_t begin = text.find(letters_, done);
      if (begin == std::string_view::npos) break;
      match(begin, begin + letters_.size());
    }
  } else {
    Search search(code_.get(), text);
    for (std::size_t from = 0; from <= text.size() && search.next(from);) {
      const std::size_t begin = search.begin(), end = search.end();
      // Between two characters a match may be empty, but not where the last one ended.
      if (end > begin || begin > done || done == 0) match(begin, end);
      from = end > begin ? end : end + 1;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    }
  }
  if (done < text.size()) visit(text.substr(done), false);
}

}  // namespace rapt::detail
