#include "generate/beams.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/sizes.h"
#include "generate/continuation.h"

namespace rapt::detail {
namespace {

struct Beam {
  Index sequence = 0;
  std::vector<std::int32_t> ids;
  double score = 0;  // log-probability
};

/// One more token behind a beam.
struct Step {
  std::size_t beam;
  std::int32_t id;
  double score;
};

bool better(const Step& a, const Step& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.beam != b.beam ? a.beam < b.beam : a.id < b.id;
}

class BeamSearch {
 public:
  BeamSearch(const Transformer& model, const std::vector<std::int32_t>& prompt,
             const GenerateOptions& options, const Context& context)
      : options_(options), continuation_(make_continuation(model, options, context)) {
    const bool translates = model.config().kind == ModelConfig::Kind::encoder_decoder;
    Beam first{continuation_->add(), {}, 0};
    if (translates) continuation_->read_source(first.sequence, prompt);
    const std::vector<std::int32_t> start =
        translates ? std::vector{options.decoder_start_token} : prompt;
    length_ = static_cast<Index>(start.size());
    const Index sequence = first.sequence;
    beams_.push_back(std::move(first));
    if (full(0)) return;
    advance(continuation_->extend(Tokens::one(start), std::span(&sequence, 1)));
  }

  Generated run(const GenerateEvents& events) {
    if (full(0)) return finished(Generated::Finish::context);
    for (Index i = 1; i < options_.max_new_tokens && !beams_.empty() && !decided(); ++i) {
      if (events.cancelled && events.cancelled()) return finished(Generated::Finish::cancelled);
      if (full(i)) return finished(Generated::Finish::context);
      extend();
    }
    return finished(Generated::Finish::length);
  }

 private:
  /// Whether the context is full after this many new tokens.
  bool full(Index new_tokens) const {
    return options_.context_size && options_.overflow == GenerateOptions::Overflow::stop &&
           length_ + new_tokens >= *options_.context_size;
  }
  double rank(double score, std::size_t length) const {
    return score /
           std::pow(static_cast<double>(std::max<std::size_t>(1, length)), options_.length_penalty);
  }
  /// Whether no unfinished beam can overtake the best finished one: scores only fall.
  bool decided() const {
    if (best_.finish_reason != Generated::Finish::eos) return false;
    const auto most = to_size(options_.max_new_tokens);
    return std::all_of(beams_.begin(), beams_.end(), [&](const Beam& beam) {
      const std::size_t length = options_.length_penalty > 0 ? most : beam.ids.size() + 1;
      return rank(beam.score, length) <= best_rank_;
    });
  }

  void extend() {
    Tokens tokens;
    std::vector<Index> sequences;
    for (const Beam& beam : beams_) {
      tokens.ids.push_back(beam.ids.back());
      tokens.lengths.push_back(1);
      sequences.push_back(beam.sequence);
    }
    advance(continuation_->extend(tokens, sequences));
  }

  /// The best next tokens of all beams: enough of them even if each beam ends.
  std::vector<Step> steps(const Tensor& logits) const {
    const auto vocab_size = to_size(logits.shape()[1]);
    const std::size_t wanted = to_size(options_.num_beams) * (1 + options_.stop_tokens.size());
    std::vector<Step> all;
    for (std::size_t b = 0; b < beams_.size(); ++b) {
      const std::span<const float> row =
          allowed_logits(logits.numbers().subspan(b * vocab_size, vocab_size), options_);
      const double most = static_cast<double>(*std::max_element(row.begin(), row.end()));
      check(std::all_of(row.begin(), row.end(), [](float x) { return !std::isnan(x); }) &&
                std::isfinite(most),
            "generate: the largest logit is ", most, ", expected finite numbers");
      double sum = 0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit) - most);
      const double base = beams_[b].score - most - std::log(sum);
      for (std::size_t i = 0; i < row.size(); ++i)
        all.push_back({b, static_cast<std::int32_t>(i), base + static_cast<double>(row[i])});
      const std::size_t kept = std::min(wanted, all.size());
      std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(),
                        better);
      all.resize(kept);
    }
    return all;
  }

  void advance(const Tensor& logits) {
    const std::vector<std::int32_t>& stop = options_.stop_tokens;
    std::vector<Beam> next;
    for (const Step& step : steps(logits)) {
      const Beam& from = beams_[step.beam];
      if (std::find(stop.begin(), stop.end(), step.id) != stop.end()) {
        keep_finished(from.ids, step.score);
      } else if (static_cast<Index>(next.size()) < options_.num_beams) {
        next.push_back({continuation_->fork(from.sequence), from.ids, step.score});
        next.back().ids.push_back(step.id);
      }
    }
    for (const Beam& beam : beams_) continuation_->remove(beam.sequence);
    beams_ = std::move(next);
  }

  void keep_finished(const std::vector<std::int32_t>& ids, double score) {
    const double here = rank(score, ids.size() + 1);
    if (best_.finish_reason == Generated::Finish::eos && here <= best_rank_) return;
    best_ = {ids, Generated::Finish::eos, score};
    best_rank_ = here;
  }

  /// The best finished beam, or the best unfinished one.
  Generated finished(Generated::Finish why) {
    if (best_.finish_reason == Generated::Finish::eos || beams_.empty()) return best_;
    const Beam& beam = beams_.front();
    return {beam.ids, why, beam.score};
  }

  const GenerateOptions& options_;
  std::unique_ptr<Continuation> continuation_;
  std::vector<Beam> beams_;  // the most likely first
  Index length_ = 0;         // tokens of the prompt
  Generated best_;
  double best_rank_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

Generated search_beams(const Transformer& model, const std::vector<std::int32_t>& prompt,
                       const GenerateOptions& options, const GenerateEvents& events,
                       const Context& context) {
  return BeamSearch(model, prompt, options, context).run(events);
}

}  // namespace rapt::detail
