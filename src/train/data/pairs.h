#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/indexed_vector.h"
#include "rapt/models/tokenizer.h"
#include "train/data/data.h"
#include "train/data/text_files.h"

namespace rapt::detail {

/// Sources and targets as tokens, read from lines "source, tab, target". Lines end in LF or CR LF;
/// every other byte belongs to the text.
class Pairs {
 public:
  /// Throws std::runtime_error with path and line where a line has not exactly one tab, an empty
  /// side, or more than `longest` tokens on a side with its eos.
  Pairs(const std::string& path, const Tokenizer& tokenizer, Index longest,
        const CancelCheck& cancel_check = {});

  Index count() const { return static_cast<Index>(keys_.size()); }
  /// Without eos.
  std::span<const std::int32_t> source(Index pair) const { return side(2 * pair); }
  std::span<const std::int32_t> target(Index pair) const { return side(2 * pair + 1); }
  /// A number that depends on the text of the source alone.
  std::uint64_t key(Index pair) const { return keys_[pair]; }
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  struct Where {
    const std::string& path;
    Index line;
    Index longest;
  };

  std::span<const std::int32_t> side(Index index) const {
    return {tokens_.data() + begins_[index], tokens_.data() + begins_[index + 1]};
  }
  void read(FileReader& reader, const Tokenizer& tokenizer, Where where);
  void append_line(std::string_view line, const Tokenizer& tokenizer, const Where& where);
  void append_side(std::string_view text, const Tokenizer& tokenizer, const Where& where);

  std::vector<std::int32_t> tokens_;
  IndexedVector<Index> begins_{0};
  IndexedVector<std::uint64_t> keys_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace rapt::detail
