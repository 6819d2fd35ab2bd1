#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "formats/config/json.h"

namespace rapt {

/// What a text is searched for: a few letters or a regular expression.
class TextPattern {
 public:
  static TextPattern letters(std::string letters);
  /// An expression as tokenizer files spell them. Throws std::runtime_error, beginning with
  /// `where`, if it has parts that other libraries read otherwise than we would.
  static TextPattern expression(std::string_view expression, const std::string& where);
  /// {"String": ...} or {"Regex": ...}.
  static TextPattern read(const Json& part, const std::string& where);

  using Visit = std::function<void(std::string_view part, bool match)>;
  /// The matches from left to right and what lies between them; together they are the text, which
  /// is valid UTF-8. Throws std::runtime_error if an expression takes more steps than is
  /// reasonable.
  void for_each(std::string_view text, const Visit& visit) const;

 private:
  std::string letters_;
  std::shared_ptr<const void> code_;  // compiled, and shared between threads; null for letters
};

}  // namespace rapt
