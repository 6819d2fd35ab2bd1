#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "formats/config/json.h"

namespace rapt::detail {

/// A string or a regular expression to search for.
class TextPattern {
 public:
  static TextPattern letters(std::string letters);
  /// An expression as tokenizer files spell it. Throws std::runtime_error, beginning with `where`,
  /// for constructs that other libraries read differently.
  static TextPattern expression(std::string_view expression, const std::string& where);
  /// {"String": ...} or {"Regex": ...}.
  static TextPattern read(const Json& part, const std::string& where);

  using Visit = std::function<void(std::string_view part, bool match)>;
  /// Visits the matches from left to right and the text between them. The text is valid UTF-8.
  /// Throws std::runtime_error if an expression takes too many steps.
  void for_each(std::string_view text, const Visit& visit) const;

 private:
  std::string letters_;
  std::shared_ptr<const void> code_;  // compiled, and shared between threads; null for letters
};

}  // namespace rapt::detail
