#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rapt/models/tokenizer.h"

namespace rapt::detail {

/// Masks tokens as BERT does. Of the tokens that are chosen, 80 % become the mask, 10 % a random
/// one, 10 % stay; each is a target. Special tokens are neither chosen nor put in.
class Masking {
 public:
  /// The mask is the tokenizer's [MASK] or <mask>, or a new token after its last.
  Masking(const Tokenizer& tokenizer, double rate);

  Index vocab_size() const { return vocab_size_; }
  std::int32_t mask() const { return mask_; }
  /// Changes inputs in place and writes a target wherever one was chosen; at least one is, if any
  /// can be. What happens at a place depends on the bits and the place alone.
  void apply(std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
             std::uint64_t bits) const;

 private:
  bool special(std::int32_t token) const;
  std::int32_t hidden(std::int32_t token, std::uint64_t bits) const;

  Index vocab_size_;
  std::int32_t mask_;
  std::vector<std::int32_t> special_;
  std::uint64_t threshold_;
};

}  // namespace rapt::detail
