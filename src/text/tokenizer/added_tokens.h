#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/indexed_vector.h"
#include "rapt/tensor.h"
#include "text/models/trie.h"
#include "text/stages/normalizer.h"

namespace rapt::detail {

/// A token that is matched in text before it is split.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      // decodes to no text by default
  bool single_word = false;  // only where no word character is next to it
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // takes the spaces after it
  bool normalized = false;   // matched in normalized text
};

/// Matches added tokens: leftmost first, of several the longest.
class AddedTokens {
 public:
  enum class Text { original, normalized };

  AddedTokens() = default;
  AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer);

  struct Search {
    Text text;
    bool special;  // whether special tokens match
  };
  static constexpr std::int32_t none = -1;
  using Visit = std::function<void(std::string_view part, std::int32_t id)>;
  /// Visits the tokens from left to right and the text between them, with the id `none`.
  void for_each(std::string_view text, Search search, const Visit& visit) const;

 private:
  struct Set {
    Trie words;  // to places in tokens_
    bool empty = true;
  };
  IndexedVector<AddedToken> tokens_;
  Set original_, normalized_;
};

}  // namespace rapt::detail
