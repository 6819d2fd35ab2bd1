#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/config/json.h"

namespace rapt::detail {

/// Text to split.
struct Piece {
  std::string_view text;
  std::size_t front;  // bytes at the beginning that come from the first character of all
};

/// Splits pieces, and may change them.
class PreTokenizerStep {
 public:
  using Next = std::function<void(Piece)>;
  virtual ~PreTokenizerStep() = default;
  /// A piece is valid until `next` returns.
  virtual void run(Piece piece, const Next& next) const = 0;
};

/// Splits text into the words that a model makes tokens of.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  /// The "pre_tokenizer" of a tokenizer.json, which may be null. Throws std::runtime_error,
  /// beginning with `source`, for what is not supported.
  PreTokenizer(const Json& part, const std::string& source);

  /// Whether the model gets bytes: one of the steps is ByteLevel.
  bool bytes() const { return bytes_; }

  using Visit = std::function<void(std::string_view word)>;
  /// Words are not empty. Time is linear in the length of the text, unless a regular expression of
  /// the file is not.
  void for_each_word(Piece piece, const Visit& visit) const { run(0, piece, visit); }

 private:
  void run(std::size_t step, Piece piece, const Visit& visit) const;

  std::vector<std::shared_ptr<const PreTokenizerStep>> steps_;
  bool bytes_ = false;
  bool letters_ = false;  // steps after ByteLevel split the letters that stand for bytes
};

}  // namespace rapt::detail
