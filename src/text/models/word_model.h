#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/trie.h"

namespace rapt::detail {

/// Makes tokens of one word. Knows nothing of texts; safe to share between threads.
class WordModel {
 public:
  virtual ~WordModel() = default;
  /// Adds the tokens of a word that is not empty.
  virtual void append(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
};

/// Greedy from left to right, always the longest piece; pieces inside of a word begin with a
/// prefix. A word that cannot be put together is one unknown token.
class WordPiece : public WordModel {
 public:
  struct Options {
    std::int32_t unknown;
    std::string prefix = "##";
    std::size_t longest_word = 100;  // in characters
  };
  /// `pieces` are copied.
  WordPiece(std::vector<Trie::Entry> pieces, Options options);
  void append(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  Trie pieces_;
  Options options_;
  std::optional<std::uint32_t> inside_;  // where the prefix leads to, if anywhere
};

/// A word is a token or unknown.
class WordLevel : public WordModel {
 public:
  WordLevel(std::vector<Trie::Entry> words, std::int32_t unknown)
      : words_(std::move(words)), unknown_(unknown) {}
  void append(std::string_view word, std::vector<std::int32_t>& ids) const override {
    const std::int32_t id = words_.find(word);
    ids.push_back(id == Trie::none ? unknown_ : id);
  }

 private:
  Trie words_;
  std::int32_t unknown_;
};

}  // namespace rapt::detail
