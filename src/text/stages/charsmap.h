#pragma once

#include <cstdint>
#include <optional>

#include "text/stages/normalizer.h"

namespace rapt::detail {

/// SentencePiece's table of replacements: a double-array trie whose values are offsets into a list
/// of zero-terminated strings.
class CharsMapStep : public NormalizerStep {
 public:
  /// `base64` is how a tokenizer.json spells it. Throws std::runtime_error if it is damaged.
  CharsMapStep(const std::string& base64, const std::string& source);
  NormalText run(NormalText in) const override;

 private:
  /// The replacement of the shortest entry that begins a text.
  std::optional<std::string_view> find(std::string_view text) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace rapt::detail
