#pragma once

#include <memory>
#include <span>
#include <vector>

#include "rapt/models/generate.h"

namespace rapt::detail {

/// Sequences that a model continues. One implementation keeps a KV cache; models that cannot use
/// one read the whole context again for every token.
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
  /// Reads the source of a new sequence; for encoder-decoders.
  virtual void read_source(Index sequence, const std::vector<std::int32_t>& source) = 0;
};

std::unique_ptr<Continuation> make_continuation(const Transformer& model,
                                                const GenerateOptions& options,
                                                const Context& context);

/// The logits of the first GenerateOptions::vocab_size tokens.
std::span<const float> allowed_logits(std::span<const float> logits,
                                      const GenerateOptions& options);

}  // namespace rapt::detail
