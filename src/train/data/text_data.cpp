#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/io/check_input.h"
#include "train/data/corpus.h"
#include "train/data/masking.h"
#include "train/data/sources.h"
#include "train/data/text_files.h"
#include "train/data/windows.h"

namespace rapt::detail {
namespace {

/// A corpus, the part of it that is used, and its windows.
struct Part {
  std::shared_ptr<const Corpus> corpus;
  Index begin;
  Index end;
  Windows windows;

  Part(std::shared_ptr<const Corpus> from, Index first, Index last, const DataOptions& options)
      : corpus(std::move(from)),
        begin(first),
        end(last),
        // The target of the last token of a window is the token after it.
        windows(first, last, options.tokens, options.objective == Objective::next_token ? 1 : 0) {}

  Index tokens() const { return end - begin; }
};

struct Parts {
  Part training;
  std::optional<Part> held_out;
};

Parts parts_of(const DataOptions& options, const Tokenizer& tokenizer,
               const CancelCheck& cancel_check) {
  const auto corpus = std::make_shared<const Corpus>(options.path, tokenizer, cancel_check);
  if (!options.eval_batches) return {{corpus, 0, corpus->tokens(), options}, {}};
  if (options.eval_path) {
    const auto other = std::make_shared<const Corpus>(*options.eval_path, tokenizer, cancel_check);
    return {{corpus, 0, corpus->tokens(), options}, {{other, 0, other->tokens(), options}}};
  }
  const Index cut = split_place(*corpus, options.eval_fraction);
  return {{corpus, 0, cut, options}, {{corpus, cut, corpus->tokens(), options}}};
}

void check_long_enough(const std::string& path, const char* purpose, const Part& part,
                       const DataOptions& options) {
  if (part.windows.count() > 0) return;
  fail_input("data: ", path, " gives ", part.tokens(), " tokens for ", purpose,
             ", expected at least ", options.tokens + (options.objective == Objective::next_token),
             ": more text or fewer tokens per item are needed");
}

class TextData : public Data {
 public:
  TextData(const DataOptions& options, const Tokenizer& tokenizer, const CancelCheck& cancel_check)
      : options_(options),
        parts_(parts_of(options, tokenizer, cancel_check)),
        vocab_size_(tokenizer.vocab_size()) {
    check_long_enough(options.path, "training", parts_.training, options);
    if (options.objective == Objective::masked_token) {
      masking_.emplace(tokenizer, options.mask_probability);
      vocab_size_ = masking_->vocab_size();
    }
    if (!parts_.held_out) return;
    check_long_enough(options.eval_path.value_or(options.path), "evaluation", *parts_.held_out,
                      options);
    chosen_ =
        std::min(parts_.held_out->windows.count(), *options.eval_batches * options.batch_size);
  }

  Batch batch(Index step) const override {
    check_step(step, options_.batch_size);
    Batch batch;
    for (Index item = 0; item < options_.batch_size; ++item) {
      const auto visit =
          parts_.training.windows.visit(step * options_.batch_size + item, options_.seed);
      append(batch, parts_.training, visit.first,
             random_bits(options_.seed, {training_stream, visit.epoch, visit.window}));
    }
    return batch;
  }

  Index eval_batches() const override { return divide_up(chosen_, options_.batch_size); }

  Batch eval_batch(Index index) const override {
    check_eval_batch(index, eval_batches());
    const Index first = index * options_.batch_size;
    Batch batch;
    for (Index number = first; number < std::min(chosen_, first + options_.batch_size); ++number) {
      // Spread over all that is held out.
      const Part& part = *parts_.held_out;
      const Index window = number * part.windows.count() / chosen_;
      append(batch, part, part.windows.first(window),
             random_bits(options_.seed, {evaluation_stream, window}));
    }
    return batch;
  }

  Index vocab_size() const override { return vocab_size_; }
  Index items_per_epoch() const override { return parts_.training.windows.count(); }

  std::string describe() const override {
    const Corpus& corpus = *parts_.training.corpus;
    std::string text = options_.path + ": " + grouped(corpus.files()) +
                       (corpus.files() == 1 ? " file, " : " files, ") +
                       grouped(parts_.training.tokens()) + " tokens in " +
                       grouped(parts_.training.windows.count()) + " windows of " +
                       grouped(options_.tokens);
    if (parts_.held_out) text += "; " + grouped(parts_.held_out->tokens()) + " tokens held out";
    return text;
  }

  std::uint64_t fingerprint() const override {
    std::uint64_t sum = fingerprint_of(options_) ^ scrambled(parts_.training.corpus->fingerprint());
    sum = scrambled(sum ^ static_cast<std::uint64_t>(parts_.training.end));
    if (parts_.held_out) sum = scrambled(sum ^ parts_.held_out->corpus->fingerprint());
    return sum;
  }

 private:
  static constexpr Index training_stream = 1, evaluation_stream = 2;

  void append(Batch& batch, const Part& part, Index first, std::uint64_t bits) const {
    const Index tokens = options_.tokens;
    const Corpus& corpus = *part.corpus;
    batch.items += 1;
    batch.tokens = tokens;
    for (Index token = 0; token < tokens; ++token) {
      batch.inputs.push_back(corpus.token(first + token));
      batch.targets.push_back(masking_ ? -1 : corpus.token(first + token + 1));
    }
    const auto count = to_size(tokens);
    const auto inputs = std::span(batch.inputs).last(count);
    const auto targets = std::span(batch.targets).last(count);
    if (masking_) masking_->apply(inputs, targets, bits);
    if (options_.separate_documents) separate(batch, part, first, targets);
  }

  void separate(Batch& batch, const Part& part, Index first,
                std::span<std::int32_t> targets) const {
    const std::vector<Index> lengths = part.corpus->parts(first, options_.tokens);
    batch.documents.insert(batch.documents.end(), lengths.begin(), lengths.end());
    if (masking_ || part.corpus->has_ends()) return;
    // No token marks the end of a document, so the beginning of the next cannot be predicted.
    Index end = 0;
    for (const Index length : part.corpus->parts(first, options_.tokens + 1))
      if ((end += length) <= options_.tokens) element(targets, end - 1) = -1;
  }

  DataOptions options_;
  Parts parts_;
  Index vocab_size_;
  std::optional<Masking> masking_;
  Index chosen_ = 0;  // windows of the evaluation
};

}  // namespace

std::unique_ptr<const Data> text_data(const DataOptions& options, const Tokenizer& tokenizer,
                                      const CancelCheck& cancel_check) {
  return std::make_unique<TextData>(options, tokenizer, cancel_check);
}

}  // namespace rapt::detail
