#pragma once

#include <memory>
#include <span>
#include <vector>

#include "rapt/generate.h"

namespace rapt {

/// Sequences that a model goes on with. One knows keys and values of what was said; models whose
/// attention cannot be continued read everything again for every token.
class Continuation {
 public:
  virtual ~Continuation() = default;
  /// A new sequence, or a copy of another.
  virtual Index add() = 0;
  virtual Index fork(Index sequence) = 0;
  virtual void remove(Index sequence) = 0;
  /// Appends tokens to sequences, at least one each, and gives the logits after the last of each:
  /// [sequences, vocabulary].
  virtual Tensor extend(const Tokens& tokens, std::span<const Index> sequences) = 0;
  /// Of an encoder-decoder: what a new sequence is about.
  virtual void read_source(Index sequence, const std::vector<std::int32_t>& source) = 0;
};

std::unique_ptr<Continuation> make_continuation(const Transformer& model,
                                                const GenerateOptions& options,
                                                const Context& context);

/// The logits of tokens that may be chosen.
std::span<const float> choosable(std::span<const float> logits, const GenerateOptions& options);

}  // namespace rapt
