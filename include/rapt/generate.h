#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/model.h"

namespace rapt {

/// How the next token is chosen from its logits: a repetition penalty, a temperature, then the
/// likeliest ones are kept and one of them is drawn.
struct RAPT_API Sampling {
  double temperature = 0.8;  // 0: the likeliest, always
  Index top_k = 0;           // 0: all
  double top_p = 1;          // the fewest tokens whose probabilities reach this sum
  double min_p = 0;          // those at least this likely, relative to the likeliest
  double repetition = 1;  // logits of tokens seen lately are divided by this, or times it below 0
  Index lately = 64;      // tokens that count for it; 0: all
  std::uint64_t seed = 0;

  /// Throws std::invalid_argument if something is out of its range.
  void check() const;
};

/// The token that is drawn: a function of the logits, the tokens so far, the seed and the place.
/// Throws std::invalid_argument if no logit is a number.
RAPT_API std::int32_t draw_token(std::span<const float> logits,
                                 std::span<const std::int32_t> so_far, const Sampling& sampling,
                                 std::uint64_t sequence);

/// The command and Python have these defaults too.
struct RAPT_API GenerateOptions {
  Sampling sampling = {};
  Index tokens = 128;  // at most so many new ones
  /// Tokens that may be seen at a time; 0: as many as positions were learnt, else no limit.
  Index context = 0;
  enum class Overflow {
    stop,   // where the context ends
    slide,  // the oldest tokens are forgotten, but for the first `pinned`
  };
  Overflow overflow = Overflow::stop;
  Index pinned = 4;
  CacheType cache = CacheType::f32;
  std::vector<std::int32_t> ends = {};  // tokens that end a text
  Index entries = 0;                    // tokens from here on are never chosen; 0: all may be
  /// Encoder-decoders: what the decoder starts with.
  std::int32_t start = 0;
  /// More than 1: beam search, the likeliest text of so many that are followed. Nothing is drawn
  /// then: `sampling` plays no part.
  Index beams = 1;
  double length_penalty = 1;  // beams: log-probability / length^penalty decides
  /// Also give Generated::log_probability, for a pass over the vocabulary per token. Beam search
  /// always does.
  bool log_probability = false;

  void check() const;
  /// The most tokens that see one another in a text that goes on from a prompt of so many.
  Index most_seen(Index prompt) const;
};

struct Generated {
  enum class Finish {
    end,        // the model wrote a token that ends a text
    length,     // as many tokens as were asked for
    context,    // no room for more
    cancelled,  // by the caller
  };
  std::vector<std::int32_t> ids;  // new ones; the token that ends it is not among them
  Finish finish = Finish::length;
  std::optional<double> log_probability =
      {};  // of the tokens, under the model itself, if asked for
};

/// "end", "length", "context" or "cancelled".
RAPT_API std::string text(Generated::Finish finish);

/// What a caller may want while tokens come.
struct GenerateEvents {
  /// Every new token of a prompt, as soon as it is known. Not called by beam search.
  std::function<void(Index prompt, std::int32_t id)> token = {};
  /// How many tokens of a prompt have been read, of how many: before each piece of it.
  std::function<void(Index prompt, Index read, Index tokens)> reading = {};
  /// Asked between tokens and between pieces of a prompt.
  std::function<bool()> cancelled = {};
};

/// Goes on from prompts, all of them at a time; of an encoder-decoder they are the sources. A
/// prompt gives the same tokens alone and in company. Throws std::invalid_argument, before anything
/// is read, if one of them is empty, leaves no room in the context or has tokens of no model.
RAPT_API std::vector<Generated> generate(const Transformer& model,
                                         std::span<const std::vector<std::int32_t>> prompts,
                                         const GenerateOptions& options = {},
                                         const GenerateEvents& events = {},
                                         const Context& context = {});

}  // namespace rapt
