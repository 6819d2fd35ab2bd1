#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rapt/tensor.h"

namespace rapt::detail {

/// A mistake in a pattern's text, already with its column and picture.
struct PatternTextError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The words of a pattern's text, one after another. Space between words means nothing.
class PatternReader {
 public:
  explicit PatternReader(std::string_view text) : text_(text) { skip_space(); }

  std::size_t at() const { return at_; }
  bool at_end() const { return at_ == text_.size(); }
  /// The next character, or 0 at the end.
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool at_name() const;

  /// Steps over `sign` if it comes next.
  bool take(char sign);
  void expect(char sign, std::string_view expected);
  /// Letters, digits and underscores; empty if there is none.
  std::string_view name();
  Index integer(std::string_view expected = "an integer");

  /// Items separated by commas, up to `close`.
  template <class Item>
  void list(char close, const Item& item) {
    if (take(close)) return;
    do item();
    while (take(','));
    expect(close, std::string("',' or '") + close + "'");
  }

  /// Runs `make`, giving an error that knows no column the column of `at`.
  template <class Make>
  auto located(std::size_t at, const Make& make) const {
    try {
      return make();
    } catch (const PatternTextError&) {
      throw;
    } catch (const std::invalid_argument& error) {
      fail(at, error.what());
    }
  }

  [[noreturn]] void fail_expecting(std::size_t at, std::string_view expected) const;
  [[noreturn]] void fail(std::size_t at, std::string_view reason) const;

 private:
  void skip_space();
  std::string found(std::size_t at) const;

  std::string_view text_;
  std::size_t at_ = 0;
};

/// The one of `names` that is most like `name`, or empty if none is near.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace rapt::detail
