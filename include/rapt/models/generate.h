#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/models/transformer.h"

namespace rapt {

/// How the next token is chosen from its logits: repetition penalty, temperature, then top-k, min-p
/// and top-p filters, then a draw.
struct RAPT_API Sampling {
  double temperature = 0.8;         // 0: greedy, always the most likely token
  std::optional<Index> top_k = {};  // keep this many of the most likely tokens; none: all
  double top_p = 1;                 // keep the fewest tokens whose probabilities reach this sum
  double min_p = 0;                 // keep tokens with this share of the top token's probability
  /// Logits of recent tokens are divided by this if positive, multiplied if negative; 1: no
  /// penalty.
  double repetition_penalty = 1;
  std::optional<Index> repetition_window = 64;  // how many tokens are recent; none: all
  std::uint64_t seed = 0;

  /// Throws std::invalid_argument if a value is out of range.
  void check() const;
};

/// The token that is drawn: a function of the logits, the tokens so far, the seed and `sequence`.
/// Throws std::invalid_argument if every logit is NaN.
RAPT_API std::int32_t draw_token(std::span<const float> logits,
                                 std::span<const std::int32_t> so_far, const Sampling& sampling,
                                 std::uint64_t sequence);

/// Options that the command and Python also offer have the same names and defaults there.
struct RAPT_API GenerateOptions {
  Sampling sampling = {};
  Index max_new_tokens = 128;
  /// Tokens that may be seen at a time; none: as many as there are trained positions, else no
  /// limit.
  std::optional<Index> context_size = {};
  enum class Overflow {
    stop,   // end where the context is full
    slide,  // forget the oldest tokens except the first `pinned`
  };
  Overflow overflow = Overflow::stop;
  Index pinned = 4;
  CacheType cache_type = CacheType::f32;
  std::vector<std::int32_t> stop_tokens = {};  // end of a text; never part of the result
  std::optional<Index> vocab_size = {};  // ids from here on are never chosen; none: all may be
  std::int32_t decoder_start_token = 0;  // of an encoder-decoder
  /// More than 1: beam search for the most likely text. Nothing is drawn; `sampling` is not used.
  Index num_beams = 1;
  double length_penalty = 1;  // beams are ranked by log-probability / length^length_penalty
  /// Also compute Generated::log_probability: one pass over the vocabulary per token. Beam search
  /// always does.
  bool log_probability = false;

  /// Throws std::invalid_argument if a value is out of range.
  void check() const;
  /// The most tokens in the context at any time after a prompt of this many.
  Index max_context(Index prompt_tokens) const;
};
template <>
inline constexpr EnumNames enum_names<GenerateOptions::Overflow>{"overflow", "stop, slide"};

struct Generated {
  enum class Finish {
    eos,        // the model wrote a stop token
    length,     // max_new_tokens reached
    context,    // the context is full
    cancelled,  // by the caller
  };
  std::vector<std::int32_t> ids;  // the new tokens, without the stop token
  Finish finish_reason = Finish::length;
  std::optional<double> log_probability = {};  // of the tokens under the model, if requested
};
template <>
inline constexpr EnumNames enum_names<Generated::Finish>{"finish_reason",
                                                         "eos, length, context, cancelled"};

/// Called while tokens come.
struct GenerateEvents {
  /// Every new token, as soon as it is known. Not called by beam search.
  std::function<void(Index prompt, std::int32_t id)> token = {};
  /// Before each part of a prompt is read: how many of its tokens have been read.
  std::function<void(Index prompt, Index read, Index tokens)> prefill = {};
  /// Return true to cancel. Called between tokens and between parts of a prompt.
  std::function<bool()> cancelled = {};
};

/// Continues all prompts in parallel; prompts of an encoder-decoder are its sources. A prompt gives
/// the same tokens alone and in a batch. Throws std::invalid_argument before any work if a prompt
/// is empty, fills the context or has ids outside the vocabulary.
RAPT_API std::vector<Generated> generate(const Transformer& model,
                                         std::span<const std::vector<std::int32_t>> prompts,
                                         const GenerateOptions& options = {},
                                         const GenerateEvents& events = {},
                                         const Context& context = {});

}  // namespace rapt
