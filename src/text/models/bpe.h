#pragma once

#include <array>
#include <optional>

#include "text/models/merge_table.h"
#include "text/models/word_model.h"

namespace rapt::detail {

/// Two tokens that become one.
struct Merge {
  std::int32_t left, right, result;
  std::uint32_t rank;  // lowest first, leftmost of equal ones
};

/// Byte-pair encoding: a word starts as its letters, then the pair of lowest rank is merged until
/// none is left.
class Bpe : public WordModel {
 public:
  enum class Letters { bytes, characters };
  struct Options {
    Letters letters = Letters::bytes;
    bool ignore_merges = false;  // a word that is a token stays whole
    bool byte_fallback = false;  // a character without a token becomes byte tokens, if there are
    bool fuse_unk = false;       // neighbouring unknown letters are one token
    std::optional<std::int32_t> unknown;  // without it unknown letters are dropped
    std::string prefix, suffix;           // of letters that are not the first, and of the last
  };
  /// `pieces` are copied. Merges differ in their pairs.
  Bpe(const std::vector<Trie::Entry>& pieces, const std::vector<Merge>& merges, Options options);
  void append(std::string_view word, std::vector<std::int32_t>& ids) const override;
  /// -1 if it has none.
  std::int32_t byte_id(std::uint8_t byte) const { return byte_ids_[byte]; }

 private:
  using Ids = std::vector<std::int32_t>;
  void append_letters(std::string_view word, Ids& ids) const;
  void append_unknown(std::string_view letter, bool& waiting, Ids& ids) const;
  void find_bridges(const std::vector<Merge>& merges);
  std::size_t merged(std::int32_t* word, std::size_t count) const;
  std::size_t merged_short(std::int32_t* word, std::size_t count) const;

  Trie pieces_;
  MergeTable pairs_;
  /// Pairs of letters at the seam of some merge. No token spans any other pair, so a word can be
  /// split there before merging. Empty if the seams cannot be determined.
  std::optional<MergeTable> bridges_;
  Options options_;
  std::array<std::int32_t, 256> byte_ids_;  // of one-byte pieces, or of <0x..> tokens
};

}  // namespace rapt::detail
