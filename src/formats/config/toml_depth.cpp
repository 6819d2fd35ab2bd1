#include "formats/config/toml_depth.h"

#include <algorithm>
#include <vector>

#include "base/io/check_input.h"
#include "formats/config/toml.h"

namespace rapt::detail {
namespace {

/// Reads a text letter by letter and counts open levels.
class DepthScan {
 public:
  DepthScan(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  void run() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark is no key
    begin_line();
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (letter == '#')
        skip_comment();
      else if (letter == '"' || letter == '\'')
        skip_string(letter);
      else
        step(letter);
    }
  }

 private:
  void step(char letter) {
    ++at_;
    switch (letter) {
      case '\n':
        ++line_;
        if (open_.empty()) begin_line();
        break;
      case '.':  // of a key, or of a number, which has one at most
        add(1);
        break;
      case '[':
      case '{':
        open_.push_back(dots_);
        dots_ = 0;
        add(1);
        break;
      case ']':
      case '}':
        close();
        break;
      case ',':  // the next key or value of the same table or array
        if (!open_.empty()) dots_ = 1;
        break;
      default:
        break;
    }
  }

  /// A line that begins with a bracket is a header, whose levels hold until the next one.
  void begin_line() {
    dots_ = 0;
    const std::size_t begin = text_.find_first_not_of(" \t", at_);
    if (begin == std::string_view::npos || text_[begin] != '[') return;
    header_ = 0;
    Index levels = 1;
    for (at_ = begin; at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '#';) {
      if (text_[at_] == '"' || text_[at_] == '\'') {
        skip_string(text_[at_]);
        continue;
      }
      levels += text_[at_] == '.' || text_[at_] == '[' ? 1 : 0;
      ++at_;
    }
    header_ = levels;
    add(0);
  }

  void close() {
    if (open_.empty()) return;
    dots_ = open_.back();
    open_.pop_back();
  }

  void add(Index levels) {
    dots_ += levels;
    Index depth = header_ + dots_;
    for (const Index outer : open_) depth += outer;
    check_input(depth <= toml_depth, source_, ":", line_,
                ": keys, tables and arrays are nested "
                "deeper than ",
                toml_depth);
  }

  void skip_comment() { at_ = std::min(text_.find('\n', at_), text_.size()); }

  /// Three quotes open a text of several lines; only double ones let letters be escaped.
  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool lines = text_.substr(at_).starts_with(three);
    const std::string_view end =
        lines ? std::string_view(three) : std::string_view(three).substr(2);
    at_ += end.size();
    while (at_ < text_.size() && !text_.substr(at_).starts_with(end)) {
      if (text_[at_] == '\n' && !lines) return;  // not closed: no TOML
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] == '\\' && quote == '"') ++at_;
      ++at_;
    }
    at_ = std::min(at_ + end.size(), text_.size());
    // Up to two quotes before the last three belong to the text: """b"""" is b".
    for (int more = 0; lines && more < 2 && at_ < text_.size() && text_[at_] == quote; ++more)
      ++at_;
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t at_ = 0;
  Index line_ = 1;
  Index header_ = 0;         // levels of the last header
  Index dots_ = 0;           // levels of the key or value that is being read
  std::vector<Index> open_;  // those of what is around it
};

}  // namespace

void check_toml_depth(std::string_view text, const std::string& source) {
  DepthScan(text, source).run();
}

}  // namespace rapt::detail
