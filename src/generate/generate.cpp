#include "rapt/models/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/random.h"
#include "generate/beams.h"
#include "generate/continuation.h"
#include "generate/sampler.h"

namespace rapt {
using namespace detail;
namespace {

/// Tokens of a prompt that are read at a time, so that cancelling takes effect soon.
constexpr Index prompt_chunk = 256;

/// Each has keys and values of its own.
constexpr Index max_beams = 1024;

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Seeds the random numbers of a prompt: a hash of its tokens, so that they do not depend on the
/// batch, and of how often it occurs before, so that a prompt given twice has two answers.
std::uint64_t stream_of(std::span<const std::vector<std::int32_t>> prompts, std::size_t index) {
  std::uint64_t hash = 0;
  for (const std::int32_t id : prompts[index])
    hash = scrambled(hash ^ static_cast<std::uint64_t>(id));
  const auto before = prompts.first(index);
  return scrambled(hash) ^
         static_cast<std::uint64_t>(std::count(before.begin(), before.end(), prompts[index]));
}

/// Whether a prompt may be read in chunks: keys and values are cached, no token sees a later one,
/// and the length changes nothing.
bool reads_in_chunks(const ModelConfig& config, Index tokens) {
  if (tokens <= prompt_chunk || why_no_cache(config) || angles_follow_length(config)) return false;
  const Lengths lengths{tokens, tokens};
  for (const Pattern& each : config.patterns) {
    const Pattern pattern = among(each, tokens);
    if (lsh_part(pattern)) return false;
    for (Index query = 0; query < lengths.queries; ++query) {
      const Ranges seen = pattern.keys_of(query, lengths);
      if (!seen.empty() && seen.back().end > query + 1) return false;
    }
  }
  return true;
}

/// A prompt that is still being continued.
struct ActivePrompt {
  Index prompt, sequence;
  std::uint64_t stream;              // of random numbers
  std::vector<std::int32_t> so_far;  // prompt and new tokens
  std::int32_t next = 0;
};

/// All prompts in parallel, token after token.
class Generation {
 public:
  Generation(const Transformer& model, std::span<const std::vector<std::int32_t>> prompts,
             const GenerateOptions& options, const GenerateEvents& events, const Context& context)
      : options_(options),
        events_(events),
        continuation_(make_continuation(model, options, context)),
        sampler_(context),
        config_(model.config()),
        results_(prompts.size()) {
    if (options.log_probability)
      for (Generated& made : results_) made.log_probability = 0;
    const bool translates = model.config().kind == ModelConfig::Kind::encoder_decoder;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      begin(static_cast<Index>(i), stream_of(prompts, i), prompts[i], translates);
  }

  std::vector<Generated> run() {
    while (!active_.empty()) {
      if (cancelled()) {
        for (const ActivePrompt& active : active_)
          result(active).finish_reason = Generated::Finish::cancelled;
        break;
      }
      step();
    }
    return std::move(results_);
  }

 private:
  bool cancelled() const { return events_.cancelled && events_.cancelled(); }
  Generated& result(const ActivePrompt& active) { return results_[active.prompt]; }

  void begin(Index prompt, std::uint64_t stream, const std::vector<std::int32_t>& ids,
             bool translates) {
    ActivePrompt active{prompt, continuation_->add(), stream,
                        translates ? std::vector{options_.decoder_start_token} : ids};
    if (translates) continuation_->read_source(active.sequence, ids);
    if (full(active)) {
      result(active).finish_reason = Generated::Finish::context;
      return;
    }
    const auto count = static_cast<Index>(active.so_far.size());
    const Index chunk = reads_in_chunks(config_, count) ? prompt_chunk : count;
    for (Index first = 0; first < count; first += chunk) {
      if (cancelled()) {
        result(active).finish_reason = Generated::Finish::cancelled;
        return;
      }
      if (events_.prefill) events_.prefill(prompt, first, count);
      const Index end = std::min(count, first + chunk);
      const Tensor logits = continuation_->extend(
          Tokens::one({active.so_far.begin() + first, active.so_far.begin() + end}),
          std::span(&active.sequence, 1));
      if (end == count && choose_next(active, logits.numbers()))
        active_.push_back(std::move(active));
    }
  }

  /// Whether the context has no place for another token.
  bool full(const ActivePrompt& active) const {
    return options_.context_size && options_.overflow == GenerateOptions::Overflow::stop &&
           std::ssize(active.so_far) >= *options_.context_size;
  }

  /// Returns false if the text ends here.
  bool choose_next(ActivePrompt& active, std::span<const float> all) {
    Generated& made = result(active);
    const std::span<const float> logits = allowed_logits(all, options_);
    active.next = sampler_.draw(logits, active.so_far, options_.sampling, active.stream);
    if (options_.log_probability)
      *made.log_probability += sampler_.log_probability(logits, active.next);
    if (contains(options_.stop_tokens, active.next)) {
      made.finish_reason = Generated::Finish::eos;
      return false;
    }
    made.ids.push_back(active.next);
    active.so_far.push_back(active.next);
    if (events_.token) events_.token(active.prompt, active.next);
    if (static_cast<Index>(made.ids.size()) >= options_.max_new_tokens) {
      made.finish_reason = Generated::Finish::length;
      return false;
    }
    made.finish_reason = Generated::Finish::context;
    return !full(active);
  }

  void step() {
    Tokens tokens;
    std::vector<Index> sequences;
    for (const ActivePrompt& active : active_) {
      tokens.ids.push_back(active.next);
      tokens.lengths.push_back(1);
      sequences.push_back(active.sequence);
    }
    const Tensor logits = continuation_->extend(tokens, sequences);
    const auto vocab_size = to_size(logits.shape()[1]);
    std::vector<ActivePrompt> unfinished;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      if (choose_next(active_[i], logits.numbers().subspan(i * vocab_size, vocab_size))) {
        unfinished.push_back(std::move(active_[i]));
      } else {
        continuation_->remove(active_[i].sequence);
      }
    }
    active_ = std::move(unfinished);
  }

  const GenerateOptions& options_;
  const GenerateEvents& events_;
  std::unique_ptr<Continuation> continuation_;
  Sampler sampler_;
  const ModelConfig& config_;
  IndexedVector<Generated> results_;
  std::vector<ActivePrompt> active_;
};

/// The number of trained positions; none: no limit.
std::optional<Index> trained_positions(const ModelConfig& config) {
  if (config.positions == ModelConfig::Positions::learned) return config.max_positions;
  if (config.positions == ModelConfig::Positions::axial)
    return *config.axial_rows * *config.axial_columns;
  return std::nullopt;
}

/// Options with the context size filled in. Refuses what the model cannot do.
GenerateOptions completed(const Transformer& model, GenerateOptions options) {
  options.check();
  const ModelConfig& config = model.config();
  const bool slides = options.overflow == GenerateOptions::Overflow::slide;
  if (const std::optional<Index> trained = trained_positions(config)) {
    check(!slides, "generate: positions are trained for ", *trained,
          " tokens, so the context cannot slide; expected overflow = stop");
    options.context_size = std::min(options.context_size.value_or(*trained), *trained);
  }
  check(!slides || options.context_size.has_value(),
        "generate: overflow = slide without a context size, expected context_size");
  check(!slides || *options.context_size > options.pinned,
        "generate: overflow = slide with a context_size of ", options.context_size.value_or(0),
        ", expected more than the ", options.pinned, " pinned tokens");
  check(config.kind != ModelConfig::Kind::encoder,
        "generate: the model is an encoder, expected one that writes tokens");
  return options;
}

/// All prompts are checked before the first is read, which may take minutes.
void check_prompts(const ModelConfig& config, std::span<const std::vector<std::int32_t>> prompts,
                   const GenerateOptions& options) {
  const bool source = config.kind == ModelConfig::Kind::encoder_decoder;
  const std::optional<Index> trained = trained_positions(config);
  const bool stops = options.overflow == GenerateOptions::Overflow::stop && !source;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto require = [&](bool ok, const auto&... parts) {
      check(ok, "generate: prompt ", i + 1, " of ", prompts.size(), parts...);
    };
    const auto count = static_cast<Index>(prompts[i].size());
    require(count > 0, " is empty, expected at least one token");
    require(!source || count <= trained.value_or(count), " has ", count,
            " tokens, expected at most the ", trained.value_or(0),
            " that positions are trained for");
    // Unless it is a source, a prompt must leave space for a token.
    require(!stops || count < options.context_size.value_or(count + 1), " has ", count,
            " tokens, expected fewer than the ", options.context_size.value_or(0),
            " of the context", trained ? "" : "; overflow = slide forgets the oldest");
    for (const std::int32_t id : prompts[i])
      require(0 <= id && id < config.vocab_size.value_or(0), " has the token ", id,
              ", expected 0 to ", config.vocab_size.value_or(0) - 1);
  }
}

}  // namespace

Index GenerateOptions::max_context(Index prompt_tokens) const {
  const Index limit = context_size.value_or(std::numeric_limits<Index>::max());
  const Index more = std::max<Index>(0, max_new_tokens);
  return prompt_tokens > limit - more ? limit : prompt_tokens + more;  // the sum might overflow
}

void GenerateOptions::check() const {
  sampling.check();
  detail::check(max_new_tokens >= 1, "generate: max_new_tokens is ", max_new_tokens,
                ", expected at least 1");
  detail::check(!context_size || *context_size >= 1, "generate: context_size is ",
                context_size.value_or(0), ", expected at least 1, or none for no limit");
  detail::check(pinned >= 0, "generate: pinned is ", pinned, ", expected 0 or more");
  detail::check(!vocab_size || *vocab_size >= 1, "generate: vocab_size is ", vocab_size.value_or(0),
                ", expected at least 1, or none for all tokens");
  detail::check(num_beams >= 1 && num_beams <= max_beams, "generate: num_beams is ", num_beams,
                ", expected 1 to ", max_beams);
  detail::check(std::isfinite(length_penalty), "generate: length_penalty is ", length_penalty,
                ", expected a finite number");
}

std::vector<Generated> generate(const Transformer& model,
                                std::span<const std::vector<std::int32_t>> prompts,
                                const GenerateOptions& options, const GenerateEvents& events,
                                const Context& context) {
  const GenerateOptions all = completed(model, options);
  check_prompts(model.config(), prompts, all);
  if (all.num_beams == 1) return Generation(model, prompts, all, events, context).run();
  std::vector<Generated> results;
  for (const std::vector<std::int32_t>& prompt : prompts) {
    if (events.cancelled && events.cancelled()) {
      results.push_back({{}, Generated::Finish::cancelled, 0});
    } else {
      results.push_back(search_beams(model, prompt, all, events, context));
    }
  }
  return results;
}

}  // namespace rapt
