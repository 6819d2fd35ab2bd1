#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "rapt/model.h"
#include "rapt/pretrained.h"

namespace rapt {

/// What one head did over a text: means over its queries, if nothing else is said.
struct HeadHealth {
  Index layer = 0;  // of ModelHealth::layers
  Index head = 0;
  std::string kind = {};       // one word: first, one, self, neighbour, near, even, mixed
  double entropy = 0;          // of the probabilities, nats
  double evenness = 0;         // entropy over that of equal probabilities: 0 one key, 1 all alike
  double largest = 0;          // largest probability
  double saturated = 0;        // share of the queries whose largest probability exceeds 0.99
  double logit_deviation = 0;  // standard deviation of a query's logits
  double jacobian_norm = 0;    // Frobenius norm of d probabilities / d logits
  double sink_mass = 0;        // probability of the first token
  Index favourite = 0;         // the token that all queries together look at most
  double favourite_mass = 0;   // its probability
  double distance = 0;         // mean |query - key| under the probabilities
  /// Smallest distances within which 50, 90 and 99 % of all probability lie, each one of
  /// ModelHealth::distances.
  Index reach50 = 0, reach90 = 0, reach99 = 0;
  /// Probability within each of ModelHealth::distances: what a window that reaches so far keeps.
  std::vector<double> within = {};
  /// The same if the first ModelHealth::pinned tokens are seen besides, and see all.
  std::vector<double> within_pinned = {};
  /// Cosine of its probabilities and those of every head of the layer, as long vectors; NaN where
  /// it was not measured.
  std::vector<double> likeness = {};
  /// Share of the probability, and of the keys, that hashing finds: NaN where it was not measured.
  double hashed_mass = std::numeric_limits<double>::quiet_NaN();
  double hashed_keys = std::numeric_limits<double>::quiet_NaN();
  /// [side, side]: probability that queries of a tile give to keys of a tile, a mean over the
  /// queries. Tiles are ModelHealth::map_tile tokens.
  Tensor map = {};
};

struct LayerHealth {
  std::string name;     // "decoder.layers.3"
  std::string pattern;  // who may see whom
};

/// The model run once more with another pattern in some layers.
struct PatternTrial {
  std::string name;                   // "window 256 and the first 4 tokens"
  std::vector<std::string> patterns;  // of each of ModelHealth::layers
  Index window = 0;                   // how far it reaches; 0: not the same in all layers
  double mass = 0;    // probability that it leaves, mean over heads, as the untouched model has it
  double worst = 0;   // of the head that loses most
  Index served = 0;   // heads that keep ModelHealth::enough
  double pairs = 0;   // share of the pairs that are still multiplied
  double cosine = 0;  // of the last layer's rows before and after, mean over tokens
  double loss = std::numeric_limits<double>::quiet_NaN();  // nats a token; NaN: writes no text
  Index cache_bytes = 0;  // of keys and values at the end of the text
};

/// A health report of a model on a text.
struct ModelHealth {
  std::string model = {};  // as the caller calls it
  Index tokens = 0, sources = 0;
  Index heads_each = 0;  // of a layer
  Index parameters = 0;
  std::vector<std::string> texts = {}, source_texts = {};  // of the tokens
  std::vector<LayerHealth> layers = {};
  std::vector<HeadHealth> heads = {};  // layer after layer
  std::vector<Index> distances = {};   // all up to 64, later ones in steps of a few percent
  Index pinned = 4;
  double enough = 0.95;  // of its probability: a window that leaves so much serves a head
  Index map_tile = 1, source_map_tile = 1;  // tokens
  double loss = std::numeric_limits<double>::quiet_NaN();
  Index cache_bytes = 0;
  std::vector<PatternTrial> trials = {};
  std::vector<std::string> advice = {};   // sentences
  std::vector<std::string> notices = {};  // what was left out, and why
};

struct HealthOptions {
  Index map = 256;     // largest side of maps; 0: none are made
  bool trials = true;  // run the model again under narrower patterns
  /// Told how much is done, from 0 to 1, and what is going on. What it throws ends the work.
  std::function<void(double done, const std::string& what)> progress = {};
};

/// Measures every head of a model on a text, in memory that grows with its length and never with
/// its square. Attention across from a decoder to an encoder is not measured, hashed layers
/// and Longformer's neither; they are named in `notices`. Names of tokens are for the caller to
/// fill in. Throws std::invalid_argument if there are fewer than two tokens, more than one
/// sequence, or nothing that can be measured.
RAPT_API ModelHealth examine(Transformer& model, const Tokens& tokens, const Tokens& sources = {},
                             const HealthOptions& options = {}, const Context& context = {});

/// What a model is examined on.
struct HealthText {
  std::string text = {};    // for the only stack, or the encoder of an encoder-decoder
  std::string target = {};  // for the decoder of an encoder-decoder
  std::vector<std::int32_t> ids = {}, target_ids = {};  // instead of texts
  Index limit = 0;  // tokens that are read of each, the first ones; 0: all
};
/// The same for a model with its tokenizer. Throws std::invalid_argument if there is no text, none
/// that the model can read, or more than its context.
RAPT_API ModelHealth examine(Pretrained& loaded, const HealthText& text,
                             const HealthOptions& options = {}, const Context& context = {});

/// Everything but the maps.
RAPT_API std::string health_json(const ModelHealth& health);
/// A page with a map of the heads to click on: one file that needs nothing else.
RAPT_API std::string health_html(const ModelHealth& health);

}  // namespace rapt
