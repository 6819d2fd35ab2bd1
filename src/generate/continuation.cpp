#include "generate/continuation.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace rapt {
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

class Cached : public Continuation {
 public:
  Cached(const Transformer& model, const GenerateOptions& options, const Context& context)
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
    made.type = options.cache;
    if (options.overflow == GenerateOptions::Overflow::slide) {
      made.window = options.context - options.pinned;
      made.pinned = options.pinned;
    }
    return made;
  }

  const Transformer& model_;
  ModelCache cache_;
  Context context_;
};

class Reread : public Continuation {
 public:
  Reread(const Transformer& model, const GenerateOptions& options, const Context& context)
      : model_(model), context_(context) {
    check(options.overflow == GenerateOptions::Overflow::stop,
          "generate: this model reads its context anew for every token, so it cannot slide over "
          "it; expected overflow = stop");
  }

  Index add() override {
    said_[next_];
    return next_++;
  }
  Index fork(Index sequence) override {
    said_[next_] = said_.at(sequence);
    return next_++;
  }
  void remove(Index sequence) override { said_.erase(sequence); }
  /// One sequence after the other: hashed layers would sort the tokens of all together.
  Tensor extend(const Tokens& tokens, std::span<const Index> sequences) override {
    const Index entries = model_.config().vocabulary;
    Tensor all = Tensor::uninitialized({static_cast<Index>(sequences.size()), entries});
    auto from = tokens.ids.begin();
    float* to = all.data();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      std::vector<std::int32_t>& said = said_.at(sequences[i]);
      said.insert(said.end(), from, from + tokens.lengths[i]);
      from += tokens.lengths[i];
      Tape tape(Tape::Mode::forward, context_);
      const Tensor hidden = Tape::take(model_.forward(tape, Tokens::one(said)));
      const Index length[] = {hidden.shape()[0]};
      const Tensor logits = model_.logits(last_rows(hidden, length), context_);
      to = std::copy_n(logits.data(), entries, to);
    }
    return all;
  }
  void read_source(Index, const std::vector<std::int32_t>&) override {
    fail("generate: an encoder-decoder with hashed or reversible layers, expected others");
  }

 private:
  const Transformer& model_;
  Context context_;
  std::map<Index, std::vector<std::int32_t>> said_;
  Index next_ = 0;
};

}  // namespace

std::span<const float> choosable(std::span<const float> logits, const GenerateOptions& options) {
  const auto entries = static_cast<std::size_t>(options.entries);
  return entries == 0 || entries >= logits.size() ? logits : logits.first(entries);
}

std::unique_ptr<Continuation> make_continuation(const Transformer& model,
                                                const GenerateOptions& options,
                                                const Context& context) {
  if (why_no_cache(model.config()).empty())
    return std::make_unique<Cached>(model, options, context);
  return std::make_unique<Reread>(model, options, context);
}

}  // namespace rapt
