#include "rapt/models/inspect.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "kernels/network_kernels.h"
#include "model/cost.h"
#include "model/model_weights.h"
#include "rapt/lsh.h"

namespace rapt {
using namespace detail;
namespace {

constexpr Index number_bytes = sizeof(float);
/// What backward keeps of a row of attention: its maximum and its sum.
constexpr Index row_bytes = sizeof(float) + sizeof(double);

/// "0-3, 5" of ascending numbers.
std::string ranges_text(const std::vector<Index>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i) text += '-' + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

/// Tokens that a stack reads: batch, and tokens of each item.
struct Extent {
  Index batch, tokens;
  Index rows() const { return batch * tokens; }
};

class Inspector {
 public:
  Inspector(const ModelConfig& config, const InspectOptions& options)
      : config_(config),
        weights_(plan_weights(config)),
        here_{options.batch, options.tokens},
        sources_{options.batch, options.sources.value_or(options.tokens)},
        stream_(config.reversible ? 2 * config.hidden_size : config.hidden_size) {}

  Inspection run();

 private:
  using Content = std::function<void()>;

  void part(const std::string& name, Index repeats, const Content& content);
  InspectLine& line(const std::string& name, const Shape& output);
  InspectLine& line(const std::string& name, const Shape& output, const Parameter* weight,
                    const Parameter* bias = nullptr);
  void linear(const std::string& name, const LinearWeights& weights, const Extent& x, Index kept);
  void norm(const std::string& name, const NormWeights& weights, const Extent& x, Index width);

  void embedding();
  void stack(const StackWeights& weights, const Extent& x, bool last);
  void layer(const LayerWeights& weights, const Extent& x);
  void self_attention(const AttentionWeights& weights, const Extent& x, const Pattern& pattern);
  void cross_attention(const AttentionWeights& weights, const Extent& x);
  void projection(const std::string& name, const NormWeights& head_norm, const Extent& x,
                  Index heads);
  void attended(const Extent& queries, const Extent& keys, const Pattern& pattern);
  void ffn(const LayerWeights& weights, const Extent& x);
  void head();
  void count_memory();

  Index stream_bytes(const Extent& x) const {
    return x.rows() * config_.hidden_size * number_bytes;
  }
  bool norms_before() const { return config_.norm_position == ModelConfig::NormPosition::pre; }

  const ModelConfig& config_;
  const ModelWeights weights_;
  const Extent here_, sources_;
  const Index stream_;  // numbers of a token after the last layer
  Index depth_ = 0;
  Index layers_kept_ = 0, layer_inputs_ = 0, orders_kept_ = 0;
  Index most_of_layer_ = 0, most_of_part_ = 0;
  Inspection made_;
};

void Inspector::part(const std::string& name, Index repeats, const Content& content) {
  const std::size_t at = made_.lines.size();
  made_.lines.push_back({.depth = depth_, .name = name, .repeats = repeats});
  ++depth_;
  content();
  --depth_;
  InspectLine& whole = made_.lines[at];
  for (std::size_t i = at + 1; i < made_.lines.size(); ++i) {
    const InspectLine& inner = made_.lines[i];
    if (inner.depth != depth_ + 1) continue;
    whole.parameters += inner.repeats * inner.parameters;
    whole.flops += static_cast<double>(inner.repeats) * inner.flops;
    whole.kept_bytes += inner.repeats * inner.kept_bytes;
    if (inner.output.rank() != 0) whole.output = inner.output;
  }
}

InspectLine& Inspector::line(const std::string& name, const Shape& output) {
  made_.lines.push_back({.depth = depth_, .name = name, .output = output});
  return made_.lines.back();
}

InspectLine& Inspector::line(const std::string& name, const Shape& output, const Parameter* weight,
                             const Parameter* bias) {
  InspectLine& made = line(name, output);
  made.weights = to_string(weights_.shape_of(weight));
  made.parameters = weights_.shape_of(weight).elements();
  if (bias == nullptr) return made;
  made.weights += " + " + to_string(weights_.shape_of(bias));
  made.parameters += weights_.shape_of(bias).elements();
  return made;
}

void Inspector::linear(const std::string& name, const LinearWeights& weights, const Extent& x,
                       Index kept) {
  const Shape shape = weights_.shape_of(weights.weight);
  InspectLine& made = line(name, {x.batch, x.tokens, shape[0]}, weights.weight, weights.bias);
  made.flops = 2 * static_cast<double>(shape.elements()) * static_cast<double>(x.rows());
  made.kept_bytes = kept;
}

/// Keeps what it reads, and mean and deviation of each row.
void Inspector::norm(const std::string& name, const NormWeights& weights, const Extent& x,
                     Index width) {
  if (weights.gain == nullptr) return;
  InspectLine& made = line(name, {x.batch, x.tokens, width}, weights.gain, weights.shift);
  made.kept_bytes = x.rows() * (width * number_bytes + static_cast<Index>(sizeof(RowMoments)));
}

void Inspector::embedding() {
  const Shape stream{here_.batch, here_.tokens, config_.hidden_size};
  if (!config_.vocab_size) {
    line("input", stream).note = "vectors: there is no vocabulary";
    return;
  }
  part("embedding", 1, [&] {
    const Index readers = weights_.encoder ? here_.rows() + sources_.rows() : here_.rows();
    line("tokens", stream, weights_.embedding).kept_bytes = readers * number_bytes;
    if (weights_.positions != nullptr)
      line("positions", stream, weights_.positions).kept_bytes = readers * number_bytes;
    if (weights_.types != nullptr)
      line("types", stream, weights_.types).kept_bytes = readers * number_bytes;
    if (weights_.axial[0] != nullptr) {
      line("rows", stream, weights_.axial[0]);
      line("columns", stream, weights_.axial[1]);
    }
    if (config_.positions == ModelConfig::Positions::sinusoidal)
      line("positions", stream).note = "sinusoidal";
    if (config_.embedding_norm)
      norm("norm", weights_.embedding_norm, {here_.batch, readers / here_.batch},
           config_.hidden_size);
  });
}

void Inspector::self_attention(const AttentionWeights& weights, const Extent& x,
                               const Pattern& pattern) {
  linear(weights.shared_key ? "qk_v" : "qkv", weights.in, x, stream_bytes(x));
  projection(weights.shared_key ? "q = k" : "q", weights.query_norm, x, config_.heads);
  if (!weights.shared_key) projection("k", weights.key_norm, x, config_.kv_head_count());
  projection("v", {}, x, config_.kv_head_count());
  if (weights.global.weight != nullptr) {
    line("global qkv", {}, weights.global.weight, weights.global.bias).note =
        "of tokens that are global";
  }
  attended(x, x, pattern);
  linear("out", weights.out, x, 0);
}

void Inspector::cross_attention(const AttentionWeights& weights, const Extent& x) {
  linear("query", weights.in, x, stream_bytes(x));
  projection("q", weights.query_norm, x, config_.heads);
  linear("key_value", weights.sources, sources_, 0);
  projection("k", weights.key_norm, sources_, config_.kv_head_count());
  projection("v", {}, sources_, config_.kv_head_count());
  attended(x, sources_, full());
  linear("out", weights.out, x, 0);
}

/// Heads as columns of a projection. A norm reads a copy of them and makes another.
void Inspector::projection(const std::string& name, const NormWeights& head_norm, const Extent& x,
                           Index heads) {
  const Index dim = config_.dim(), bytes = x.rows() * heads * dim * number_bytes;
  InspectLine& made = line(name, {x.batch, heads, x.tokens, dim});
  if (head_norm.gain != nullptr) {
    made.note = "norm " + to_string(weights_.shape_of(head_norm.gain));
    made.parameters = dim;
    made.kept_bytes = 2 * bytes + x.rows() * heads * static_cast<Index>(sizeof(RowMoments));
  }
  made.weights = std::to_string(heads) + " of " + to_string(Shape{dim, config_.hidden_size});
  made.kept_bytes += bytes;
}

void Inspector::attended(const Extent& queries, const Extent& keys, const Pattern& pattern) {
  const Index heads = config_.heads, dim = config_.dim();
  const double pairs = pairs_of(pattern, {queries.tokens, keys.tokens});
  const double products = 2 * pairs * static_cast<double>(dim * heads * queries.batch);
  InspectLine& scores = line("scores", {queries.batch, heads, queries.tokens, keys.tokens});
  scores.note = "never stored; " + to_string(pattern);
  scores.flops = products;
  InspectLine& out = line("heads", {queries.batch, heads, queries.tokens, dim});
  out.flops = products;
  out.kept_bytes = queries.rows() * heads * (dim * number_bytes + row_bytes);
  const std::optional<Lsh> hashed = lsh_part(pattern);
  if (!hashed || queries.tokens <= hashed->chunk) return;
  const Index chunks = (queries.tokens + hashed->chunk - 1) / hashed->chunk;
  const Index sides = hashed->keys == Lsh::Keys::shared ? 1 : 2;
  const Index order = queries.batch * heads * hashed->rounds * chunks * hashed->chunk * sides *
                      static_cast<Index>(sizeof(std::int32_t));
  out.note = "sorted by " + std::to_string(hashed->rounds) + " rounds of hashing";
  out.kept_bytes += order;
  orders_kept_ += order;
}

void Inspector::ffn(const LayerWeights& weights, const Extent& x) {
  const Index hidden = config_.ffn_dim(), bytes = x.rows() * hidden * number_bytes;
  linear("up", weights.up, x, stream_bytes(x));
  line(config_.gated ? "gate" : "activation", {x.batch, x.tokens, hidden}).kept_bytes =
      config_.gated ? 2 * bytes : bytes;
  linear("down", weights.down, x, bytes);
}

void Inspector::layer(const LayerWeights& weights, const Extent& x) {
  const std::size_t from = made_.lines.size();
  const auto residual = [&](const std::string& name, const NormWeights& norms,
                            const Content& content) {
    const std::string norm_name = name + " norm";
    if (norms_before()) norm(norm_name, norms, x, config_.hidden_size);
    part(name, 1, content);
    if (!norms_before()) norm(norm_name, norms, x, config_.hidden_size);
  };
  residual("attention", weights.self.norm,
           [&] { self_attention(weights.self, x, weights.pattern); });
  if (weights.cross)
    residual("cross attention", weights.cross->norm, [&] { cross_attention(*weights.cross, x); });
  residual("ffn", weights.ffn_norm, [&] { ffn(weights, x); });
  for (std::size_t i = from; i < made_.lines.size(); ++i)
    if (made_.lines[i].depth == depth_)
      most_of_part_ = std::max(most_of_part_, made_.lines[i].kept_bytes + stream_bytes(x));
}

void Inspector::stack(const StackWeights& weights, const Extent& x, bool last) {
  part(weights.name, 1, [&] {
    if (weights.table != nullptr)
      line("relative positions", {}, weights.table).note = "shared by the layers";
    std::vector<bool> told(weights.layers.size());
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      if (told[i]) continue;
      std::vector<Index> alike;
      for (std::size_t j = i; j < weights.layers.size(); ++j)
        if (weights.layers[j].pattern == weights.layers[i].pattern) {
          alike.push_back(static_cast<Index>(j));
          told[j] = true;
        }
      const auto count = static_cast<Index>(alike.size());
      const Index orders_before = orders_kept_;
      const std::size_t at = made_.lines.size();
      part(count == 1 ? "layer " + ranges_text(alike) : "layers " + ranges_text(alike) + ", each",
           count, [&] { layer(weights.layers[i], x); });
      orders_kept_ += (count - 1) * (orders_kept_ - orders_before);
      const Index kept = made_.lines[at].kept_bytes;
      layers_kept_ += count * kept;
      layer_inputs_ += count * stream_bytes(x);
      most_of_layer_ = std::max(most_of_layer_, kept - stream_bytes(x));
    }
    norm("norm", weights.final_norm, x, stream_);
    // What the layers of a decoder read the sources from.
    if (!last)
      line("sources", {x.batch, x.tokens, config_.hidden_size}).kept_bytes = stream_bytes(x);
  });
}

/// Logits exist for a chunk of rows at a time; what is kept are the hidden rows, their gradients
/// and the head's.
void Inspector::head() {
  if (weights_.head.weight == nullptr) return;
  if (config_.mlm_head) {
    linear("head transform", weights_.head_transform, here_, stream_bytes(here_));
    line("head activation", {here_.batch, here_.tokens, config_.hidden_size}).kept_bytes =
        stream_bytes(here_);
    norm("head norm", weights_.head_norm, here_, config_.hidden_size);
  }
  InspectLine& made = line("head", {here_.batch, here_.tokens, *config_.vocab_size},
                           weights_.head.weight, weights_.head.bias);
  const Index numbers = made.parameters;
  made.note = "logits of 256 rows at a time";
  if (config_.tied_embeddings) {
    made.note = "the embedding; " + made.note;
    made.parameters = weights_.shape_of(weights_.head.bias).elements();
  }
  made.flops = 2 * static_cast<double>(numbers) * static_cast<double>(here_.rows());
  made.kept_bytes = (2 * here_.rows() * stream_ + numbers) * number_bytes;
}

void Inspector::count_memory() {
  const InspectLine& whole = made_.lines.front();
  made_.parameters = whole.parameters;
  made_.flops = whole.flops;
  made_.weight_bytes = made_.gradient_bytes = made_.parameters * number_bytes;
  made_.optimizer_bytes = 2 * made_.weight_bytes;
  const Index outside = whole.kept_bytes - layers_kept_;
  made_.plain = {whole.kept_bytes, 0};
  made_.recomputed = {outside + layer_inputs_, most_of_layer_};
  // Backward splits the two streams that forward left and keeps one part of one layer.
  made_.reversed = {outside + orders_kept_, 2 * stream_bytes(here_) + most_of_part_};
  made_.configured = config_.reversible  ? made_.reversed
                     : config_.recompute ? made_.recomputed
                                         : made_.plain;
  if (config_.kind != ModelConfig::Kind::encoder)
    made_.cache_bytes = 2 * config_.layers * config_.kv_head_count() * config_.dim() * number_bytes;
}

Inspection Inspector::run() {
  part("model", 1, [&] {
    embedding();
    if (weights_.encoder) stack(*weights_.encoder, sources_, false);
    stack(weights_.stack, here_, true);
    head();
  });
  count_memory();
  return std::move(made_);
}

}  // namespace

Inspection inspect(const ModelConfig& config, const InspectOptions& options) {
  const Index sources = options.sources.value_or(options.tokens);
  check(options.batch >= 1 && options.tokens >= 1 && sources >= 1, "inspect: batch ", options.batch,
        ", tokens ", options.tokens, ", sources ", sources, ", expected at least 1 of each");
  return Inspector(config, options).run();
}

}  // namespace rapt
