#include <algorithm>
#include <cmath>
#include <numbers>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/random.h"
#include "model/pass.h"
#include "rapt/lsh.h"

namespace rapt::detail {
namespace {

/// [1, heads, tokens, dim] of some rows of [rows, width].
View heads_in(const Tensor& x, Index first_row, Index tokens, const HeadShape& shape, Index first) {
  const Index width = x.shape()[1];
  return View::unchecked(x.data() + first_row * width + first, {1, shape.heads, tokens, shape.dim},
                         {0, shape.dim, width, 1});
}

}  // namespace

/// Queries, keys and values of a projection's columns: normalized and rotated if the config says
/// so.
Pass::Heads Pass::heads_of(Tape& tape, Variable qkv, const StackInput& in, const LayerPlace& at) {
  const Index q = config_.heads * config_.dim(), kv = config_.kv_head_count() * config_.dim();
  const AttentionWeights& weights = in.layer(at.layer).self;
  const Index items = in.layout->items();
  Heads heads{{qkv, 0}, {qkv, weights.shared_key ? 0 : q}, {}};
  const Index values = weights.shared_key ? q : q + kv;
  if (config_.qk_norm) {
    // Columns that are normed become variables of their own.
    const auto normed = [&](Index first, Index count, const NormWeights& norm) {
      return head_norm(tape, {qkv, first}, {items, count, config_.dim()}, *norm.gain,
                       config_.norm_epsilon);
    };
    heads.v = {qkv, values};
    heads.q = {normed(0, config_.heads, weights.query_norm), 0};
    heads.k = weights.shared_key
                  ? heads.q
                  : HeadColumns{normed(q, config_.kv_head_count(), weights.key_norm), 0};
  }
  if (config_.positions != ModelConfig::Positions::rope) {
    heads.v = {qkv, values};
    return heads;
  }
  if (config_.qk_norm) {
    if (weights.shared_key) heads.k = {};
    heads.q = {rotated(tape, std::move(heads.q.of), in, config_.heads), 0};
    heads.k =
        weights.shared_key
            ? heads.q
            : HeadColumns{rotated(tape, std::move(heads.k.of), in, config_.kv_head_count()), 0};
    return heads;
  }
  // Queries and keys are neighbours: one pass rotates both, in place.
  const Index count = config_.heads + (weights.shared_key ? 0 : config_.kv_head_count());
  heads = {};
  const Variable all = rotated(tape, std::move(qkv), in, count);
  return {{all, 0}, {all, weights.shared_key ? 0 : q}, {all, values}};
}

/// The first heads of every row, rotated by its position.
Variable Pass::rotated(Tape& tape, Variable x, const StackInput& in, Index heads) const {
  const HeadShape shape{in.layout->items(), heads, config_.dim()};
  if (in.ropes.size() > 1)
    return rotate_varlen(tape, std::move(x), shape, in.layout->lengths(), in.ropes);
  const bool cached = use_.cache != nullptr;
  const std::vector<Index> positions = cached ? positions_of(*in.layout) : in.layout->positions();
  return rotate(tape, std::move(x), shape, in.ropes.front(), positions);
}

Attention Pass::score(const StackInput& in, const LayerPlace& at) const {
  Attention how;
  how.scale = config_.scale;
  how.softcap = config_.softcap;
  if (config_.positions == ModelConfig::Positions::alibi) how.bias = alibi(config_.heads);
  if (in.weights->table != nullptr) {
    const bool decoder = in.weights->name == "decoder";
    how.bias = t5_bias(in.weights->table->value.view(), config_.t5_max_distance,
                       decoder ? RelativeTable::Direction::past : RelativeTable::Direction::both);
  }
  if (trains_ && config_.attention_dropout > 0)
    how.dropout = at.dropout.at(site_probabilities).attention(config_.attention_dropout);
  how.stats = options_.stats != nullptr;
  return how;
}

/// Adds rows to those of the layer that are counted already.
void Pass::keep_stats(const std::string& layer, const Attended& attended, Index& counted) const {
  if (counted == 0) options_.stats->push_back({.layer = layer});
  LayerStats& stats = options_.stats->back();
  const Tensor& largest = attended.stats->largest;
  const Index rows = largest.elements();
  const auto before = static_cast<double>(counted);
  counted += rows;
  stats.entropy *= before;
  stats.largest *= before;
  stats.saturated *= before;
  for (Index r = 0; r < rows; ++r) {
    stats.entropy += static_cast<double>(attended.stats->entropy.data()[r]);
    stats.largest += static_cast<double>(largest.data()[r]);
    stats.saturated += largest.data()[r] > 0.99f ? 1 : 0;
    const float max = element(attended.rows.max, r);
    if (std::isfinite(max))
      stats.largest_logit =
          std::max(stats.largest_logit, std::fabs(static_cast<double>(max)) * std::numbers::ln2);
  }
  const auto count = static_cast<double>(std::max<Index>(1, counted));
  stats.entropy /= count;
  stats.largest /= count;
  stats.saturated /= count;
}

AttentionExtras Pass::extras(const StackInput& in, const LayerPlace& at, const char* part) const {
  const std::string name = in.weights->name + ".layers." + std::to_string(at.layer) + part;
  AttentionExtras made{
      .table = in.weights->table,
      .after_call = [this, name, counted = Index{0}](const Attended& attended) mutable {
        if (attended.stats) keep_stats(name, attended, counted);
      }};
  show_call(name, made);
  return made;
}

void Pass::show_call(const std::string& layer, AttentionExtras& extras) const {
  if (!options_.attention) return;
  extras.before_call = [this, layer](const View& q, const View& k, const View& v, Attention& how) {
    AttentionCall call{layer, q, k, v, how};
    options_.attention(call);
    how = std::move(call.how);
  };
}

Variable Pass::attended(Tape& tape, const Variable& x, const StackInput& in, const LayerPlace& at) {
  const AttentionWeights& weights = in.layer(at.layer).self;
  Variable qkv = linear(tape, x, weights.in);
  if (config_.global_projections)
    return linear(tape, over_longformer_rows(tape, x, qkv, in, at), weights.out);
  const Heads heads = heads_of(tape, std::move(qkv), in, at);
  if (use_.cache != nullptr) {
    KvCache& cache = impl_of(*use_.cache).layers[at.layer];
    Attention how = score(in, at);
    how.pattern = impl_of(*use_.cache).pattern(in.layer(at.layer).pattern);
    append(cache, heads.k, heads.v, *in.layout);
    return linear(tape, over_cache(tape, heads.q, cache, how, *in.layout), weights.out);
  }
  return linear(tape, over_rows(tape, heads, in, at), weights.out);
}

Variable Pass::over_rows(Tape& tape, const Heads& heads, const StackInput& in,
                         const LayerPlace& at) {
  const Pattern& pattern = in.layer(at.layer).pattern;
  if (lsh_part(pattern)) return over_hashed_rows(tape, heads, in, at);
  const HeadShape shape{1, config_.heads, config_.dim()};
  return attention_varlen(tape, heads.q, heads.k, heads.v, shape, config_.kv_head_count(),
                          calls_of(score(in, at), pattern, runs_of(*in.layout, *in.layout)),
                          extras(in, at, ".attention"));
}

/// A call for each run; what it drops has a seed of its own.
std::vector<SequenceCall> Pass::calls_of(const Attention& how, const Pattern& pattern,
                                         const std::vector<SequenceRun>& runs) {
  std::vector<SequenceCall> calls;
  for (const SequenceRun& run : runs) {
    calls.push_back({run.tokens, how, run.items, run.keys});
    Attention& one = calls.back().how;
    one.pattern = among(pattern, run.keys);
    one.plan = plans_.plan(one.pattern, {run.tokens, run.keys});
    if (run.first > 0) one.dropout.seed = random_bits(how.dropout.seed, {run.first});
  }
  return calls;
}

Variable Pass::over_longformer_rows(Tape& tape, const Variable& x, const Variable& qkv,
                                    const StackInput& in, const LayerPlace& at) {
  Longformer how;
  how.window = *window_of(in.layer(at.layer).pattern);
  how.scale = config_.scale;
  if (trains_ && config_.attention_dropout > 0)
    how.dropout = at.dropout.at(site_probabilities).attention(config_.attention_dropout);
  const bool any = std::ranges::count(in.global, std::uint8_t{0}) < std::ssize(in.global);
  if (any)
    for (const std::uint8_t global : in.global)
      how.classes.push_back(global != 0 ? TokenClass::global : TokenClass::local);
  const Variable others = any ? linear(tape, x, in.layer(at.layer).self.global) : Variable();
  return longformer_attention(tape, qkv, others,
                              {in.layout->lengths(), config_.heads, config_.dim()}, how);
}

/// Tokens are sorted within their sequence, so packed ones are one call each. Hashed attention has
/// no statistics.
Variable Pass::over_hashed_rows(Tape& tape, const Heads& heads, const StackInput& in,
                                const LayerPlace& at) {
  const SequenceLayout& layout = *in.layout;
  Attention how = score(in, at);
  how.stats = false;
  const bool again = at.orders != nullptr && !at.orders->empty();
  const auto order = [&](std::size_t i) { return again ? (*at.orders)[i] : nullptr; };
  AttentionExtras extras;
  if (at.orders != nullptr && !again)
    extras.after_call = [&at](const Attended& attended) {
      at.orders->push_back(attended.rows.order);
    };
  show_call(in.weights->name + ".layers." + std::to_string(at.layer) + ".attention", extras);
  const HeadShape shape{layout.items(), config_.heads, config_.dim()};
  const Pattern& pattern = in.layer(at.layer).pattern;
  if (!layout.packed()) {
    how.pattern = among(pattern, layout.tokens());
    how.order = order(0);
    return attention(tape, heads.q, heads.k, heads.v, shape, config_.kv_head_count(), how, extras);
  }
  std::vector<SequenceCall> calls;
  for (std::size_t i = 0; i < layout.lengths().size(); ++i) {
    calls.push_back({layout.lengths()[i], how});
    calls.back().how.pattern = among(pattern, layout.lengths()[i]);
    calls.back().how.order = order(i);
    calls.back().how.dropout.seed = random_bits(how.dropout.seed, {static_cast<Index>(i)});
  }
  return attention_varlen(tape, heads.q, heads.k, heads.v, shape, config_.kv_head_count(), calls,
                          extras);
}

Attention Pass::cross_score(const LayerPlace& at) const {
  Attention how;
  how.scale = config_.scale;
  how.softcap = config_.softcap;
  how.stats = options_.stats != nullptr;
  if (trains_ && config_.attention_dropout > 0)
    how.dropout = at.dropout.at(site_cross_probabilities).attention(config_.attention_dropout);
  return how;
}

/// Sources have no positions of their own here: they came in with the encoder's input.
Variable Pass::crossed(Tape& tape, const Variable& x, const StackInput& in, const LayerPlace& at) {
  const AttentionWeights& weights = *in.layer(at.layer).cross;
  const SequenceLayout& queries = *in.layout;
  const HeadShape shape{1, config_.heads, config_.dim()};
  Variable q = linear(tape, x, weights.in);
  if (config_.qk_norm)
    q = head_norm(tape, {q, 0}, shape, *weights.query_norm.gain, config_.norm_epsilon);
  const Attention how = cross_score(at);
  if (use_.cache != nullptr) {
    const KvCache& cache = impl_of(*use_.cache).sources[at.layer];
    return linear(tape, over_cache(tape, {q, 0}, cache, how, queries), weights.out);
  }
  check(!in.sources.empty(), "forward: an encoder-decoder without sources");
  const Heads heads = source_heads(tape, in.sources, weights);
  AttentionExtras more = extras(in, at, ".cross_attention");
  more.table = nullptr;
  const Variable y =
      attention_varlen(tape, {q, 0}, heads.k, heads.v, shape, config_.kv_head_count(),
                       calls_of(how, full(), runs_of(queries, *in.source_layout)), more);
  return linear(tape, y, weights.out);
}

/// Keys and values of what the encoder read.
Pass::Heads Pass::source_heads(Tape& tape, const Variable& read, const AttentionWeights& weights) {
  const Variable kv = linear(tape, read, weights.sources);
  const HeadShape keys{1, config_.kv_head_count(), config_.dim()};
  Heads heads{{}, {kv, 0}, {kv, config_.kv_head_count() * config_.dim()}};
  if (config_.qk_norm)
    heads.k = {head_norm(tape, heads.k, keys, *weights.key_norm.gain, config_.norm_epsilon), 0};
  return heads;
}

void Pass::keep_sources(Tape& tape, const Variable& read, const SequenceLayout& layout) {
  for (std::size_t i = 0; i < weights_.stack.layers.size(); ++i) {
    const Heads heads = source_heads(tape, read, *weights_.stack.layers[i].cross);
    append(impl_of(*use_.cache).sources[i], heads.k, heads.v, layout);
  }
}

void Pass::append(KvCache& cache, const HeadColumns& k, const HeadColumns& v,
                  const SequenceLayout& layout) const {
  const HeadShape keys{1, config_.kv_head_count(), config_.dim()};
  Index row = 0;
  for (std::size_t i = 0; i < layout.lengths().size(); ++i) {
    const Index tokens = layout.lengths()[i];
    cache.append(use_.sequences[i], heads_in(k.of.value(), row, tokens, keys, k.first),
                 heads_in(v.of.value(), row, tokens, keys, v.first));
    row += tokens;
  }
}

Variable Pass::over_cache(Tape& tape, const HeadColumns& q, const KvCache& cache, Attention how,
                          const SequenceLayout& layout) const {
  const Pattern pattern = how.pattern;
  const HeadShape shape{1, config_.heads, config_.dim()};
  Tensor out = Tensor::uninitialized({layout.rows(), shape.heads * shape.dim});
  Index row = 0;
  for (std::size_t i = 0; i < layout.lengths().size(); ++i) {
    const Index tokens = layout.lengths()[i];
    how.pattern = among(pattern, cache.tokens(use_.sequences[i]));
    const Index width = shape.heads * shape.dim;
    const auto to =
        MutableView::unchecked(out.data() + row * width, {1, shape.heads, tokens, shape.dim},
                               {tokens * width, shape.dim, width, 1});
    attend_into(to, heads_in(q.of.value(), row, tokens, shape, q.first), cache,
                use_.sequences.subspan(i, 1), how);
    row += tokens;
  }
  return tape.input(std::move(out));
}

}  // namespace rapt::detail
