#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/indexed_vector.h"
#include "base/io/hash.h"
#include "base/threads/cancel_check.h"
#include "rapt/models/tokenizer.h"

namespace rapt::detail {

/// Files as one row of tokens, two bytes each if they fit. Every file that is not empty is a
/// document. The eos token also begins a text: there is one before the first document, between two
/// and after the last, so that generation can start a document from nothing. A document begins at
/// the eos before it.
class Corpus {
 public:
  Corpus(const std::string& path, const Tokenizer& tokenizer, const CancelCheck& cancel_check = {});

  Index tokens() const { return size_; }
  std::int32_t token(Index place) const {
    return narrow_ ? std::int32_t{element(short_tokens_, place)} : element(long_tokens_, place);
  }
  /// Where documents begin, ascending.
  std::span<const Index> documents() const { return documents_; }
  /// Whether a token separates documents.
  bool has_ends() const { return end_.has_value(); }
  Index files() const { return files_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  /// Lengths of the parts that documents cut count > 0 places into.
  std::vector<Index> parts(Index first, Index count) const;

 private:
  void append(std::span<const std::int32_t> tokens);
  void read(const std::string& path, const Tokenizer& tokenizer, Hasher& hasher,
            const CancelCheck& cancel_check);

  // Deques grow without a moment at which everything exists twice.
  std::deque<std::uint16_t> short_tokens_;
  std::deque<std::int32_t> long_tokens_;
  std::vector<Index> documents_;
  bool narrow_;
  std::optional<std::int32_t> end_;
  Index files_ = 0;
  Index size_ = 0;
  std::uint64_t fingerprint_ = 0;
};

/// Where the last `held_out` of the tokens begin; at the nearest document unless that would be off
/// by more than half of them.
Index split_place(const Corpus& corpus, double held_out);

}  // namespace rapt::detail
