#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/models/pretrained.h"
#include "rapt/models/transformer.h"

namespace rapt {

/// What one head does on a text: means over its queries unless noted.
struct HeadStats {
  enum class Kind {
    first,      // rests on the first token (an attention sink)
    one,        // rests on one other token
    self,       // looks at the query's own token
    neighbour,  // attends to the token next to the query
    near,       // 90 % within 16 tokens
    even,       // attends to all tokens almost equally
    mixed,      // none of these
  };
  Index layer = 0;  // of HeadReport::layers
  Index head = 0;
  Kind kind = Kind::mixed;
  double entropy = 0;             // of the probabilities, in nats
  double normalized_entropy = 0;  // entropy / that of equal probabilities: 0 one key, 1 all equally
  double largest = 0;             // largest probability
  double saturated = 0;           // share of queries whose largest probability exceeds 0.99
  double logit_std = 0;           // standard deviation of a query's logits
  double jacobian_norm = 0;       // Frobenius norm of d probabilities / d logits
  double sink_mass = 0;           // probability of the first token
  Index favourite = 0;            // the token with the most probability over all queries
  double favourite_mass = 0;      // its probability
  double distance = 0;            // mean |query - key| under the probabilities
  /// Smallest distances that hold 50, 90 and 99 % of all probability, each one of
  /// HeadReport::distances.
  Index reach50 = 0, reach90 = 0, reach99 = 0;
  /// Probability within each of HeadReport::distances: what a window of that size keeps.
  std::vector<double> within = {};
  /// The same if the first HeadReport::pinned tokens stay visible, and see everything.
  std::vector<double> within_pinned = {};
  /// Cosine of its probabilities and those of every head of the layer, as long vectors; NaN where
  /// it was not measured.
  std::vector<double> similarity = {};
  /// Share of the probability, and of the keys, that LSH finds; none where it was not measured.
  std::optional<double> hashed_mass = {}, hashed_keys = {};
  /// [side, side]: probability that queries of a tile give to keys of a tile, a mean over the
  /// queries. Tiles are HeadReport::map_tile tokens. Empty without maps.
  Tensor map = {};
};
template <>
inline constexpr EnumNames enum_names<HeadStats::Kind>{
    "head kind", "first, one, self, neighbour, near, even, mixed"};

/// A layer that was measured, and who may see whom in it.
struct LayerPattern {
  std::string name;  // "decoder.layers.3"
  Pattern pattern;
};

/// The model run again with another pattern in some layers.
struct PatternTrial {
  std::string name;               // "window of 256 and the first 4 tokens"
  std::vector<Pattern> patterns;  // of each of HeadReport::layers
  std::optional<Index> window;    // its reach, if it is the same in all layers
  double mass = 0;    // probability that it keeps in the unchanged model, mean over heads
  double worst = 0;   // of the head that loses most
  Index served = 0;   // heads that keep HeadReport::enough
  double pairs = 0;   // share of query-key pairs that are still multiplied
  double cosine = 0;  // of the last layer's rows before and after, mean over tokens
  std::optional<double> loss = {};  // nats per token; none: not a language model
  Index cache_bytes = 0;            // of keys and values at the end of the text
};

/// What every head of a model does on a text.
struct HeadReport {
  std::string model = {};  // the caller's name for it
  Index tokens = 0, sources = 0;
  Index heads_per_layer = 0;
  Index parameters = 0;
  std::vector<std::string> texts = {}, source_texts = {};  // of the tokens
  std::vector<LayerPattern> layers = {};
  std::vector<HeadStats> heads = {};  // layer after layer
  std::vector<Index> distances = {};  // all up to 64, then in steps of a few percent
  Index pinned = 4;
  double enough = 0.95;  // a window that keeps this much probability serves a head
  Index map_tile = 1, source_map_tile = 1;  // tokens
  std::optional<double> loss = {};          // nats per token; none: not a language model
  Index cache_bytes = 0;
  std::vector<PatternTrial> trials = {};
  std::vector<std::string> advice = {};    // sentences
  std::vector<std::string> warnings = {};  // what was left out, and why
};

struct HeadReportOptions {
  std::optional<Index> map_size = 256;  // largest side of maps, up to 256; none: no maps
  bool trials = true;                   // run the model again under narrower patterns
  /// Called with the share of work that is done, 0 to 1, and the current step. An exception that it
  /// throws ends the work.
  std::function<void(double done, const std::string& step)> progress = {};
};

/// Measures every head of a model on a text, in memory linear in its length. Cross-attention,
/// hashed layers and Longformer's global projections are not measured, which `warnings` says. Texts
/// of tokens are left to the caller. Throws std::invalid_argument if there are fewer than two
/// tokens, more than one sequence, or no layer to measure.
RAPT_API HeadReport heads(Transformer& model, const Tokens& tokens, const Tokens& sources = {},
                          const HeadReportOptions& options = {}, const Context& context = {});

/// What a model reads for a report: a text or ids.
struct HeadReportText {
  std::string text = {};    // for a single stack, or the encoder of an encoder-decoder
  std::string target = {};  // for the decoder of an encoder-decoder
  std::vector<std::int32_t> ids = {}, target_ids = {};
  std::optional<Index> limit = {};  // read this many tokens of each; none: all
};
/// The same for a model with its tokenizer. Throws std::invalid_argument if there is no text, or
/// more than fits into the model's context.
RAPT_API HeadReport heads(Pretrained& loaded, const HeadReportText& text,
                          const HeadReportOptions& options = {}, const Context& context = {});

/// Everything except the maps.
RAPT_API std::string to_json(const HeadReport& report);
/// An interactive page: one file without dependencies.
RAPT_API std::string to_html(const HeadReport& report);

}  // namespace rapt
