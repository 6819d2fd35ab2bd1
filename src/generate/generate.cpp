#include "rapt/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/random.h"
#include "generate/beams.h"
#include "generate/continuation.h"
#include "generate/sampler.h"

namespace rapt {
namespace {

/// Tokens of a prompt that are read at a time: whoever cancels does not wait long.
constexpr Index prompt_piece = 256;

/// Each keeps keys and values of its own.
constexpr Index most_beams = 1024;

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// What the random numbers of a prompt belong to: its tokens, so that they are the same in any
/// company, and how often it came before, so that a prompt given twice has two answers.
std::uint64_t name_of(std::span<const std::vector<std::int32_t>> prompts, std::size_t index) {
  std::uint64_t name = 0;
  for (const std::int32_t id : prompts[index])
    name = scrambled(name ^ static_cast<std::uint64_t>(id));
  const auto before = prompts.first(index);
  return scrambled(name) ^
         static_cast<std::uint64_t>(std::count(before.begin(), before.end(), prompts[index]));
}

/// Whether a prompt may be read piece by piece: keys and values are kept, no token sees a later
/// one, and none moves what others see.
bool reads_in_pieces(const ModelConfig& config, Index tokens) {
  if (tokens <= prompt_piece || !why_no_cache(config).empty() || angles_follow_length(config))
    return false;
  const Lengths lengths{tokens, tokens};
  for (const std::string& text : config.patterns) {
    const Pattern pattern = among(Pattern::parse(text), tokens);
    if (lsh_part(pattern)) return false;
    for (Index query = 0; query < lengths.queries; ++query) {
      const Ranges seen = pattern.keys_of(query, lengths);
      if (!seen.empty() && seen.back().end > query + 1) return false;
    }
  }
  return true;
}

/// One prompt on its way.
struct Text {
  Index prompt, sequence;
  std::uint64_t name;
  std::vector<std::int32_t> so_far;  // prompt and new tokens
  std::int32_t next = 0;
};

/// All prompts side by side, token after token.
class Generation {
 public:
  Generation(const Transformer& model, std::span<const std::vector<std::int32_t>> prompts,
             const GenerateOptions& options, const GenerateEvents& events, const Context& context)
      : options_(options),
        events_(events),
        on_(make_continuation(model, options, context)),
        sampler_(context),
        config_(model.config()),
        results_(prompts.size()) {
    if (options.log_probability)
      for (Generated& made : results_) made.log_probability = 0;
    const bool translates = model.config().kind == ModelConfig::Kind::encoder_decoder;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      begin(static_cast<Index>(i), name_of(prompts, i), prompts[i], translates);
  }

  std::vector<Generated> run() {
    while (!texts_.empty()) {
      if (cancelled()) {
        for (const Text& text : texts_) result(text).finish = Generated::Finish::cancelled;
        break;
      }
      step();
    }
    return std::move(results_);
  }

 private:
  bool cancelled() const { return events_.cancelled && events_.cancelled(); }
  Generated& result(const Text& text) { return results_[static_cast<std::size_t>(text.prompt)]; }

  void begin(Index prompt, std::uint64_t name, const std::vector<std::int32_t>& ids,
             bool translates) {
    Text text{prompt, on_->add(), name, translates ? std::vector{options_.start} : ids};
    if (translates) on_->read_source(text.sequence, ids);
    if (full(text)) {
      result(text).finish = Generated::Finish::context;
      return;
    }
    const auto count = static_cast<Index>(text.so_far.size());
    const Index piece = reads_in_pieces(config_, count) ? prompt_piece : count;
    for (Index first = 0; first < count; first += piece) {
      if (cancelled()) {
        result(text).finish = Generated::Finish::cancelled;
        return;
      }
      if (events_.reading) events_.reading(prompt, first, count);
      const Index end = std::min(count, first + piece);
      const Tensor logits =
          on_->extend(Tokens::one({text.so_far.begin() + first, text.so_far.begin() + end}),
                      std::span(&text.sequence, 1));
      if (end == count && take(text, logits.numbers())) texts_.push_back(std::move(text));
    }
  }

  /// No room for one token more.
  bool full(const Text& text) const {
    return options_.context > 0 && options_.overflow == GenerateOptions::Overflow::stop &&
           static_cast<Index>(text.so_far.size()) >= options_.context;
  }

  /// Chooses the next token; false if the text ends here.
  bool take(Text& text, std::span<const float> all) {
    Generated& made = result(text);
    const std::span<const float> logits = choosable(all, options_);
    text.next = sampler_.draw(logits, text.so_far, options_.sampling, text.name);
    if (options_.log_probability)
      *made.log_probability += sampler_.log_probability(logits, text.next);
    if (contains(options_.ends, text.next)) {
      made.finish = Generated::Finish::end;
      return false;
    }
    made.ids.push_back(text.next);
    text.so_far.push_back(text.next);
    if (events_.token) events_.token(text.prompt, text.next);
    if (static_cast<Index>(made.ids.size()) >= options_.tokens) {
      made.finish = Generated::Finish::length;
      return false;
    }
    made.finish = Generated::Finish::context;
    return !full(text);
  }

  void step() {
    Tokens tokens;
    std::vector<Index> sequences;
    for (const Text& text : texts_) {
      tokens.ids.push_back(text.next);
      tokens.lengths.push_back(1);
      sequences.push_back(text.sequence);
    }
    const Tensor logits = on_->extend(tokens, sequences);
    const auto entries = static_cast<std::size_t>(logits.shape()[1]);
    std::vector<Text> going;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (take(texts_[i], logits.numbers().subspan(i * entries, entries))) {
        going.push_back(std::move(texts_[i]));
      } else {
        on_->remove(texts_[i].sequence);
      }
    }
    texts_ = std::move(going);
  }

  const GenerateOptions& options_;
  const GenerateEvents& events_;
  std::unique_ptr<Continuation> on_;
  Sampler sampler_;
  const ModelConfig& config_;
  std::vector<Generated> results_;
  std::vector<Text> texts_;
};

/// Tokens that positions were learnt for; 0: any number.
Index learnt_positions(const ModelConfig& config) {
  if (config.positions == ModelConfig::Positions::learned) return config.max_tokens;
  if (config.positions == ModelConfig::Positions::axial)
    return config.axial_rows * config.axial_columns;
  return 0;
}

/// The context filled in, and what cannot be is refused.
GenerateOptions completed(const Transformer& model, GenerateOptions options) {
  options.check();
  const ModelConfig& config = model.config();
  const Index learnt = learnt_positions(config);
  if (learnt > 0) {
    check(options.overflow == GenerateOptions::Overflow::stop,
          "generate: positions are learnt for ", learnt,
          " tokens, so the context cannot slide; expected overflow = stop");
    options.context = options.context == 0 ? learnt : std::min(options.context, learnt);
  }
  check(options.overflow == GenerateOptions::Overflow::stop || options.context > options.pinned,
        "generate: overflow = slide with a context of ", options.context,
        " tokens, expected more than the ", options.pinned,
        " pinned ones: give --context, in Python window");
  check(config.kind != ModelConfig::Kind::encoder,
        "generate: the model is an encoder, expected one that writes tokens");
  return options;
}

/// What is wrong with any of the prompts is told before the first is read: minutes may lie between.
void check_prompts(const ModelConfig& config, std::span<const std::vector<std::int32_t>> prompts,
                   const GenerateOptions& options) {
  const bool source = config.kind == ModelConfig::Kind::encoder_decoder;
  const Index learnt = source ? learnt_positions(config) : 0;
  const bool stops = options.overflow == GenerateOptions::Overflow::stop && !source;
  const bool slides = learnt_positions(config) == 0;  // would, if it were told to
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto require = [&](bool ok, const auto&... parts) {
      check(ok, "generate: prompt ", i + 1, " of ", prompts.size(), parts...);
    };
    const auto count = static_cast<Index>(prompts[i].size());
    require(count > 0, " is empty, expected at least one token");
    require(learnt == 0 || count <= learnt, " has ", count, " tokens, expected at most the ",
            learnt, " that positions were learnt for");
    // Behind a prompt that is no source there has to be room for a token.
    require(!stops || options.context == 0 || count < options.context, " has ", count,
            " tokens, expected fewer than the ", options.context, " of the context",
            slides ? "; overflow = slide forgets the oldest" : "");
    for (const std::int32_t id : prompts[i])
      require(0 <= id && id < config.vocabulary, " has the token ", id, ", expected 0 to ",
              config.vocabulary - 1);
  }
}

}  // namespace

std::string text(Generated::Finish finish) {
  switch (finish) {
    case Generated::Finish::end:
      return "end";
    case Generated::Finish::length:
      return "length";
    case Generated::Finish::context:
      return "context";
    case Generated::Finish::cancelled:
      return "cancelled";
  }
  return "";
}

Index GenerateOptions::most_seen(Index prompt) const {
  const Index room = context > 0 ? context : std::numeric_limits<Index>::max();
  const Index more = std::max<Index>(0, tokens);
  return prompt > room - more ? room : prompt + more;  // a sum might not fit
}

void GenerateOptions::check() const {
  sampling.check();
  rapt::check(tokens >= 1, "generate: ", tokens, " tokens, expected at least 1");
  rapt::check(context >= 0 && pinned >= 0, "generate: context ", context, " and pinned ", pinned,
              ", expected 0 or more");
  rapt::check(entries >= 0, "generate: entries is ", entries, ", expected 0 (all) or more");
  rapt::check(beams >= 1 && beams <= most_beams, "generate: ", beams, " beams, expected 1 to ",
              most_beams);
}

std::vector<Generated> generate(const Transformer& model,
                                std::span<const std::vector<std::int32_t>> prompts,
                                const GenerateOptions& options, const GenerateEvents& events,
                                const Context& context) {
  const GenerateOptions all = completed(model, options);
  check_prompts(model.config(), prompts, all);
  if (all.beams == 1) return Generation(model, prompts, all, events, context).run();
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
