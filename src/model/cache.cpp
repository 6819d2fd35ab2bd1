#include "model/cache.h"

#include <algorithm>

#include "base/check.h"
#include "model/body.h"
#include "rapt/lsh.h"

namespace rapt {

std::string why_no_cache(const ModelConfig& config) {
  if (config.reversible) return "its layers are reversible";
  if (config.positions == ModelConfig::Positions::rope &&
      (std::holds_alternative<DynamicNtkRope>(config.rope_scaling) ||
       std::holds_alternative<LongRope>(config.rope_scaling)))
    return "its rope_scaling turns all keys anew as the text grows";
  for (const std::string& text : config.patterns)
    if (lsh_part(Pattern::parse(text))) return "the order of " + text + " changes with every token";
  return "";
}

ModelCache::ModelCache(const Transformer& model, const Options& options, const Context& context)
    : body_(std::make_unique<Body>()) {
  const ModelConfig& config = model.config();
  check(config.kind != ModelConfig::Kind::encoder,
        "ModelCache: the model is an encoder, expected one that writes tokens");
  const std::string reason = why_no_cache(config);
  check(reason.empty(), "ModelCache: this model cannot be continued from keys and values: ", reason,
        "; forward reads the whole text");
  body_->options = options;
  for (const LayerWeights& layer : model.body_->weights.stack.layers) {
    CacheOptions each{.kv_heads = config.kv_count(), .dim = config.dim(), .type = options.type};
    if (layer.cross) body_->sources.emplace_back(each, context);
    each.window = options.window;
    each.pinned = options.pinned;
    body_->layers.emplace_back(each, context);
  }
}
ModelCache::~ModelCache() = default;
ModelCache::ModelCache(ModelCache&&) noexcept = default;
ModelCache& ModelCache::operator=(ModelCache&&) noexcept = default;

Index ModelCache::add() {
  Index sequence = 0;
  for (auto* caches : {&body_->layers, &body_->sources})
    for (KvCache& layer : *caches) sequence = layer.add();
  return sequence;
}

Index ModelCache::fork(Index sequence) {
  Index made = 0;
  for (auto* caches : {&body_->layers, &body_->sources})
    for (KvCache& layer : *caches) made = layer.fork(sequence);
  return made;
}

void ModelCache::remove(Index sequence) {
  for (auto* caches : {&body_->layers, &body_->sources})
    for (KvCache& layer : *caches) layer.remove(sequence);
}

void ModelCache::truncate(Index sequence, Index tokens) {
  for (KvCache& layer : body_->layers) layer.truncate(sequence, tokens);
}

Index ModelCache::tokens(Index sequence) const { return body_->layers.front().tokens(sequence); }

Index ModelCache::bytes() const {
  Index bytes = 0;
  for (const auto* caches : {&body_->layers, &body_->sources})
    for (const KvCache& layer : *caches) bytes += layer.bytes();
  return bytes;
}

const ModelCache::Options& ModelCache::options() const { return body_->options; }

void Transformer::encode(const Tokens& sources, ModelCache& cache, std::span<const Index> sequences,
                         const Context& context) {
  check(body_->weights.encoder.has_value(), "encode: the model has no encoder");
  check(sources.lengths.size() == sequences.size(), "encode: ", sources.lengths.size(),
        " sources for ", sequences.size(), " sequences, expected as many");
  for (const Index sequence : sequences)
    check(cache.tokens(sequence) == 0 && cache.body().sources.front().tokens(sequence) == 0,
          "encode: sequence ", sequence, " has begun already, expected a new one");
  Tape tape(Tape::Mode::forward, context);
  const auto reading =
      std::make_shared<Pass>(body_->config, body_->weights, body_->rope, PassOptions{});
  const auto layout = std::make_shared<const SequenceLayout>(sources.lengths);
  const Variable read = reading->stack(tape, reading->embed(tape, sources, *layout),
                                       {&*body_->weights.encoder, layout});
  const auto keeping = std::make_shared<Pass>(body_->config, body_->weights, std::nullopt,
                                              PassOptions{}, CacheUse{&cache, sequences});
  keeping->keep_sources(tape, read, *layout);
}

Tensor Transformer::extend(const Tokens& tokens, ModelCache& cache,
                           std::span<const Index> sequences, const Context& context) {
  check(tokens.lengths.size() == sequences.size(), "extend: ", tokens.lengths.size(),
        " sequences of tokens for ", sequences.size(), " of the cache, expected as many");
  for (const Index sequence : sequences)
    check(cache.body().sources.empty() || cache.body().sources.front().tokens(sequence) > 0,
          "extend: sequence ", sequence, " has no sources yet, expected encode first");
  Tape tape(Tape::Mode::forward, context);
  const auto pass = std::make_shared<Pass>(body_->config, body_->weights, body_->rope,
                                           PassOptions{}, CacheUse{&cache, sequences});
  const auto layout = std::make_shared<const SequenceLayout>(tokens.lengths);
  return Tape::take(
      pass->stack(tape, pass->embed(tape, tokens, *layout), {&body_->weights.stack, layout}));
}

}  // namespace rapt
