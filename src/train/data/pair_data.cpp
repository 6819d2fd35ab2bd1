#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/io/check_input.h"
#include "base/random.h"
#include "base/sizes.h"
#include "train/data/pairs.h"
#include "train/data/sources.h"
#include "train/data/text_files.h"

namespace rapt::detail {
namespace {

/// Batches that are filled together, so that items of like length meet.
constexpr Index batches_per_group = 64;

class PairData : public Data {
 public:
  PairData(const DataOptions& options, const Tokenizer& tokenizer, const CancelCheck& cancel_check)
      : options_(options),
        tokenizer_(tokenizer),
        training_(
            std::make_shared<const Pairs>(options.path, tokenizer, options.tokens, cancel_check)),
        evaluated_(training_) {
    check(tokenizer.eos().has_value(), "data: pairs need a tokenizer with an eos token");
    chosen_.resize(training_->count());
    std::iota(chosen_.begin(), chosen_.end(), Index{0});
    if (options.eval_batches) hold_out(cancel_check);
    if (chosen_.empty())
      fail_input("data: ", options.path, " gives no pairs for training",
                 held_out_.empty() ? "" : ": all have one source, and so are held out together");
  }

  /// Group g of an endless row of pairs, each epoch in its own order, is sorted by length and cut
  /// into batches, which come in random order.
  Batch batch(Index step) const override {
    check_step(step, options_.batch_size);
    const Index group = step / batches_per_group;
    const Index size = batches_per_group * options_.batch_size;
    std::vector<Index> pairs;
    for (Index number = group * size; number < (group + 1) * size; ++number)
      pairs.push_back(taken(number));
    sort_by_length(*training_, pairs);
    const RandomOrder order(batches_per_group, random_bits(options_.seed, {group_stream, group}));
    const Index first = order[step % batches_per_group] * options_.batch_size;
    return made(*training_, std::span(pairs).subspan(to_size(first), to_size(options_.batch_size)));
  }

  Index eval_batches() const override {
    return divide_up(static_cast<Index>(held_out_.size()), options_.batch_size);
  }

  Batch eval_batch(Index index) const override {
    check_eval_batch(index, eval_batches());
    const auto first = to_size(index * options_.batch_size);
    const auto items = to_size(options_.batch_size);
    return made(*evaluated_,
                std::span(held_out_).subspan(first, std::min(items, held_out_.size() - first)));
  }

  Index vocab_size() const override { return tokenizer_.vocab_size(); }
  Index items_per_epoch() const override { return static_cast<Index>(chosen_.size()); }

  std::string describe() const override {
    std::string text = options_.path + ": " + grouped(items_per_epoch()) + " pairs";
    if (!held_out_.empty())
      text += "; " + grouped(static_cast<Index>(held_out_.size())) + " for evaluation";
    return text;
  }

  std::uint64_t fingerprint() const override {
    std::uint64_t sum = fingerprint_of(options_) ^ scrambled(training_->fingerprint());
    for (const std::uint64_t part : {evaluated_->fingerprint(), std::uint64_t{chosen_.size()}})
      sum = scrambled(sum ^ part);
    return sum;
  }

 private:
  static constexpr Index order_stream = 1, group_stream = 2;

  void hold_out(const CancelCheck& cancel_check) {
    const Index most = *options_.eval_batches * options_.batch_size;
    if (options_.eval_path) {
      evaluated_ = std::make_shared<const Pairs>(*options_.eval_path, tokenizer_, options_.tokens,
                                                 cancel_check);
      held_out_.resize(evaluated_->count());
      std::iota(held_out_.begin(), held_out_.end(), Index{0});
    } else {
      split_by_source();
    }
    if (held_out_.empty())
      fail_input("data: ", options_.eval_path.value_or(options_.path),
                 " gives no pairs for evaluation");
    spread(most);
    sort_by_length(*evaluated_, held_out_);
  }

  /// By the text of the source: lines that are there twice are never on both sides, and lines that
  /// come later change little.
  void split_by_source() {
    std::stable_sort(chosen_.begin(), chosen_.end(),
                     [&](Index a, Index b) { return training_->key(a) < training_->key(b); });
    auto cut =
        static_cast<Index>(std::ceil(options_.eval_fraction * static_cast<double>(chosen_.size())));
    while (cut > 0 && cut < std::ssize(chosen_) &&
           training_->key(chosen_[cut]) == training_->key(chosen_[cut - 1]))
      ++cut;
    const auto middle = chosen_.begin() + cut;
    held_out_.assign(chosen_.begin(), middle);
    chosen_.erase(chosen_.begin(), middle);
    std::sort(chosen_.begin(), chosen_.end());
  }

  /// Keeps at most `most` of the held-out pairs, evenly spread.
  void spread(Index most) {
    const auto count = static_cast<Index>(held_out_.size());
    if (count <= most) return;
    for (Index i = 0; i < most; ++i) held_out_[i] = held_out_[i * count / most];
    held_out_.resize(most);
  }

  /// The pair that is taken after `number` others.
  Index taken(Index number) const {
    const auto count = static_cast<Index>(chosen_.size());
    const RandomOrder order(count, random_bits(options_.seed, {order_stream, number / count}));
    return chosen_[order[number % count]];
  }

  static void sort_by_length(const Pairs& pairs, std::vector<Index>& chosen) {
    std::stable_sort(chosen.begin(), chosen.end(), [&](Index a, Index b) {
      return std::tuple(pairs.target(a).size(), pairs.source(a).size()) <
             std::tuple(pairs.target(b).size(), pairs.source(b).size());
    });
  }

  /// Sources and targets end with eos, and the decoder's input begins with it.
  Batch made(const Pairs& pairs, std::span<const Index> chosen) const {
    const std::int32_t end = *tokenizer_.eos(), filling = tokenizer_.pad().value_or(end);
    Batch batch;
    batch.items = static_cast<Index>(chosen.size());
    for (const Index pair : chosen) {
      batch.tokens = std::max(batch.tokens, static_cast<Index>(pairs.target(pair).size()) + 1);
      batch.source_lengths.push_back(static_cast<Index>(pairs.source(pair).size()) + 1);
      batch.source_tokens = std::max(batch.source_tokens, batch.source_lengths.back());
    }
    for (std::size_t item = 0; item < chosen.size(); ++item) {
      const auto source = pairs.source(chosen[item]), target = pairs.target(chosen[item]);
      const auto tokens = (item + 1) * to_size(batch.tokens);
      batch.sources.insert(batch.sources.end(), source.begin(), source.end());
      batch.sources.push_back(end);
      batch.sources.resize((item + 1) * to_size(batch.source_tokens), filling);
      batch.inputs.push_back(end);
      batch.inputs.insert(batch.inputs.end(), target.begin(), target.end());
      batch.inputs.resize(tokens, filling);
      batch.targets.insert(batch.targets.end(), target.begin(), target.end());
      batch.targets.push_back(end);
      batch.targets.resize(tokens, -1);
    }
    return batch;
  }

  DataOptions options_;
  Tokenizer tokenizer_;
  std::shared_ptr<const Pairs> training_, evaluated_;
  IndexedVector<Index> chosen_;    // pairs of training_ that are trained on
  IndexedVector<Index> held_out_;  // pairs of evaluated_
};

}  // namespace

std::unique_ptr<const Data> pair_data(const DataOptions& options, const Tokenizer& tokenizer,
                                      const CancelCheck& cancel_check) {
  return std::make_unique<PairData>(options, tokenizer, cancel_check);
}

}  // namespace rapt::detail
