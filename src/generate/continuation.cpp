#include "generate/continuation.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/sizes.h"

namespace rapt::detail {
namespace {

/// [sequences, width]: the last row of each sequence.
Tensor last_rows(const Tensor& hidden, std::span<const Index> lengths) {
  const Index width = hidden.shape()[1];
  Tensor last = Tensor::uninitialized({static_cast<Index>(lengths.size()), width});
  Index end = 0;
  float* to = last.data();
  for (const Index length : lengths) {
    end += length;
    to = std::copy_n(hidden.data() + (end - 1) * width, width, to);
  }
  return last;
}

class CachedContinuation : public Continuation {
 public:
  CachedContinuation(const Transformer& model, const GenerateOptions& options,
                     const Context& context)
      : model_(model), cache_(model, cache_options(options), context), context_(context) {}

  Index add() override { return cache_.add(); }
  Index fork(Index sequence) override { return cache_.fork(sequence); }
  void remove(Index sequence) override { cache_.remove(sequence); }
  Tensor extend(const Tokens& tokens, std::span<const Index> sequences) override {
    const Tensor hidden = model_.extend(tokens, cache_, sequences, context_);
    return model_.logits(last_rows(hidden, tokens.lengths), context_);
  }
  void read_source(Index sequence, const std::vector<std::int32_t>& source) override {
    model_.encode(Tokens::one(source), cache_, std::span(&sequence, 1), context_);
  }

 private:
  static ModelCache::Options cache_options(const GenerateOptions& options) {
    ModelCache::Options made;
    made.type = options.cache_type;
    if (options.overflow == GenerateOptions::Overflow::slide) {
      made.window = options.context_size.value() - options.pinned;
      made.pinned = options.pinned;
    }
    return made;
  }

  const Transformer& model_;
  ModelCache cache_;
  Context context_;
};

class UncachedContinuation : public Continuation {
 public:
  UncachedContinuation(const Transformer& model, const GenerateOptions& options,
                       const Context& context)
      : model_(model), context_(context) {
    check(options.overflow == GenerateOptions::Overflow::stop,
          "generate: this model reads its whole context again for every token, so the context "
          "cannot slide; expected overflow = stop");
  }

  Index add() override {
    ids_[next_];
    return next_++;
  }
  Index fork(Index sequence) override {
    ids_[next_] = ids_.at(sequence);
    return next_++;
  }
  void remove(Index sequence) override { ids_.erase(sequence); }
  /// One sequence after the other: hashed layers would sort the tokens of all together.
  Tensor extend(const Tokens& tokens, std::span<const Index> sequences) override {
    const Index vocab_size = model_.config().vocab_size.value_or(0);
    Tensor all = Tensor::uninitialized({static_cast<Index>(sequences.size()), vocab_size});
    auto from = tokens.ids.begin();
    float* to = all.data();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      std::vector<std::int32_t>& ids = ids_.at(sequences[i]);
      ids.insert(ids.end(), from, from + tokens.lengths[i]);
      from += tokens.lengths[i];
      Tape tape(Tape::Mode::forward, context_);
      const Tensor hidden = Tape::release(model_.forward(tape, Tokens::one(ids)));
      const Index length[] = {hidden.shape()[0]};
      const Tensor logits = model_.logits(last_rows(hidden, length), context_);
      to = std::copy_n(logits.data(), vocab_size, to);
    }
    return all;
  }
  void read_source(Index, const std::vector<std::int32_t>&) override {
    fail("generate: an encoder-decoder with hashed or reversible layers, expected others");
  }

 private:
  const Transformer& model_;
  Context context_;
  std::map<Index, std::vector<std::int32_t>> ids_;  // by sequence
  Index next_ = 0;
};

}  // namespace

std::span<const float> allowed_logits(std::span<const float> logits,
                                      const GenerateOptions& options) {
  if (!options.vocab_size || *options.vocab_size >= std::ssize(logits)) return logits;
  return logits.first(to_size(*options.vocab_size));
}

std::unique_ptr<Continuation> make_continuation(const Transformer& model,
                                                const GenerateOptions& options,
                                                const Context& context) {
  if (!why_no_cache(model.config()))
    return std::make_unique<CachedContinuation>(model, options, context);
  return std::make_unique<UncachedContinuation>(model, options, context);
}

}  // namespace rapt::detail
