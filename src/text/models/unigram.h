#pragma once

#include <array>
#include <optional>
#include <vector>

#include "base/indexed_vector.h"
#include "text/models/word_model.h"

namespace rapt::detail {

/// Splits a word into the pieces with the highest sum of scores. A character that is no piece is
/// unknown and costs more than any piece; neighbouring unknown characters are one token, or bytes.
class Unigram : public WordModel {
 public:
  struct Options {
    std::optional<std::int32_t> unknown;
    bool byte_fallback = false;
  };
  /// `pieces` are copied; values are places in `scores`.
  Unigram(const std::vector<Trie::Entry>& pieces, std::vector<double> scores, Options options);
  /// Throws std::runtime_error for an unknown character if there is no token for it.
  void append(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  struct Best {
    double score = 0;
    std::uint32_t begin = 0;  // of the last piece
    std::int32_t id = -1;     // of that piece; -1 if no piece ends here
  };
  std::vector<Best> best_split(std::string_view word) const;
  void append_unknown(std::string_view letters, std::vector<std::int32_t>& ids) const;

  Trie pieces_;
  IndexedVector<double> scores_;
  Options options_;
  double unknown_score_ = 0;
  std::array<std::int32_t, 256> byte_ids_;
};

}  // namespace rapt::detail
