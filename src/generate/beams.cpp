#include "generate/beams.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "generate/continuation.h"

namespace rapt {
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
      : options_(options), on_(make_continuation(model, options, context)) {
    const bool translates = model.config().kind == ModelConfig::Kind::encoder_decoder;
    Beam first{on_->add(), {}, 0};
    if (translates) on_->read_source(first.sequence, prompt);
    const std::vector<std::int32_t> start = translates ? std::vector{options.start} : prompt;
    length_ = static_cast<Index>(start.size());
    const Index sequence = first.sequence;
    beams_.push_back(std::move(first));
    if (full(0)) return;
    take(on_->extend(Tokens::one(start), std::span(&sequence, 1)));
  }

  Generated run(const GenerateEvents& events) {
    if (full(0)) return finished(Generated::Finish::context);
    for (Index i = 1; i < options_.tokens && !beams_.empty() && !decided(); ++i) {
      if (events.cancelled && events.cancelled()) return finished(Generated::Finish::cancelled);
      if (full(i)) return finished(Generated::Finish::context);
      extend();
    }
    return finished(Generated::Finish::length);
  }

 private:
  /// No room for one token more behind so many new ones.
  bool full(Index tokens) const {
    return options_.context > 0 && options_.overflow == GenerateOptions::Overflow::stop &&
           length_ + tokens >= options_.context;
  }
  double rank(double score, std::size_t length) const {
    return score /
           std::pow(static_cast<double>(std::max<std::size_t>(1, length)), options_.length_penalty);
  }
  /// No beam under way can overtake what is finished: scores only fall.
  bool decided() const {
    if (best_.finish != Generated::Finish::end) return false;
    const auto most = static_cast<std::size_t>(options_.tokens);
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
    take(on_->extend(tokens, sequences));
  }

  /// The best continuations of all beams, so many that enough are left if each beam may end.
  std::vector<Step> steps(const Tensor& logits) const {
    const auto entries = static_cast<std::size_t>(logits.shape()[1]);
    const std::size_t wanted =
        static_cast<std::size_t>(options_.beams) * (1 + options_.ends.size());
    std::vector<Step> all;
    for (std::size_t b = 0; b < beams_.size(); ++b) {
      const std::span<const float> row =
          choosable(logits.numbers().subspan(b * entries, entries), options_);
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

  void take(const Tensor& logits) {
    std::vector<Beam> next;
    for (const Step& step : steps(logits)) {
      const Beam& from = beams_[step.beam];
      const bool ends =
          std::find(options_.ends.begin(), options_.ends.end(), step.id) != options_.ends.end();
      if (ends) {
        keep_finished(from.ids, step.score);
      } else if (static_cast<Index>(next.size()) < options_.beams) {
        next.push_back({on_->fork(from.sequence), from.ids, step.score});
        next.back().ids.push_back(step.id);
      }
    }
    for (const Beam& beam : beams_) on_->remove(beam.sequence);
    beams_ = std::move(next);
  }

  void keep_finished(const std::vector<std::int32_t>& ids, double score) {
    const double here = rank(score, ids.size() + 1);
    if (best_.finish == Generated::Finish::end && here <= best_rank_) return;
    best_ = {ids, Generated::Finish::end, score};
    best_rank_ = here;
  }

  /// The best that ended, or the best under way if none did.
  Generated finished(Generated::Finish why) {
    if (best_.finish == Generated::Finish::end || beams_.empty()) return best_;
    const Beam& beam = beams_.front();
    return {beam.ids, why, beam.score};
  }

  const GenerateOptions& options_;
  std::unique_ptr<Continuation> on_;
  std::vector<Beam> beams_;  // the likeliest first
  Index length_ = 0;         // tokens that were there from the start
  Generated best_;
  double best_rank_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

Generated search_beams(const Transformer& model, const std::vector<std::int32_t>& prompt,
                       const GenerateOptions& options, const GenerateEvents& events,
                       const Context& context) {
  return BeamSearch(model, prompt, options, context).run(events);
}

}  // namespace rapt
