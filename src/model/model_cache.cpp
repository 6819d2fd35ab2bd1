#include "model/model_cache.h"

#include <algorithm>

#include "attention/lsh/lsh_cache_hash.h"
#include "attention/lsh/lsh_rotations.h"
#include "base/check.h"
#include "base/sizes.h"
#include "model/transformer_impl.h"
#include "rapt/lsh.h"

namespace rapt {
using namespace detail;

std::optional<std::string> why_no_cache(const ModelConfig& config) {
  for (const Pattern& pattern : config.patterns) {
    const std::optional<Lsh> hashed = lsh_part(pattern);
    if (!hashed) continue;
    const std::string text = to_string(pattern);
    if (hashed->keys == Lsh::Keys::separate)
      return text + " sorts queries apart from keys, and a cache keeps no earlier queries";
    if (hashed->buckets.empty()) return text + " names no buckets, so they change with the length";
    if (lsh_bucket_count(hashed->buckets) > LshCacheHash::most_buckets)
      return text + " has more buckets than a cache can hold, " +
             std::to_string(LshCacheHash::most_buckets);
  }
  return std::nullopt;
}

bool angles_follow_length(const ModelConfig& config) {
  return config.positions == ModelConfig::Positions::rope &&
         (std::holds_alternative<DynamicNtkRope>(config.rope_scaling) ||
          std::holds_alternative<LongRope>(config.rope_scaling));
}

ModelCache::ModelCache(const Transformer& model, const Options& options, const Context& context)
    : impl_(std::make_unique<Impl>()) {
  const ModelConfig& config = model.config();
  check(config.kind != ModelConfig::Kind::encoder,
        "ModelCache: the model is an encoder, expected one that writes tokens");
  const std::optional<std::string> reason = why_no_cache(config);
  check(!reason,
        "ModelCache: this model cannot be continued from keys and values: ", reason.value_or(""),
        "; forward reads the whole text");
  impl_->options = options;
  impl_->keeps_tokens = angles_follow_length(config);
  for (const LayerWeights& layer : model.impl_->weights.stack.layers) {
    CacheOptions each{
        .kv_heads = config.kv_head_count(), .dim = config.dim(), .type = options.type};
    if (layer.cross) impl_->sources.emplace_back(each, context);
    // Hashed layers keep all tokens; only the pattern forgets.
    if (const std::optional<Lsh> hashed = lsh_part(layer.pattern)) {
      each.lsh = CacheLsh{.lsh = *hashed};
    } else {
      each.window = options.window;
      each.pinned = options.pinned;
    }
    impl_->layers.emplace_back(each, context);
  }
}
ModelCache::~ModelCache() = default;
ModelCache::ModelCache(ModelCache&&) noexcept = default;
ModelCache& ModelCache::operator=(ModelCache&&) noexcept = default;

Index ModelCache::add() {
  Index sequence = 0;
  for (auto* caches : {&impl_->layers, &impl_->sources})
    for (KvCache& layer : *caches) sequence = layer.add();
  if (impl_->keeps_tokens) impl_->tokens[sequence] = {};
  return sequence;
}

Index ModelCache::fork(Index sequence) {
  Index made = 0;
  for (auto* caches : {&impl_->layers, &impl_->sources})
    for (KvCache& layer : *caches) made = layer.fork(sequence);
  if (impl_->keeps_tokens) impl_->tokens[made] = impl_->tokens.at(sequence);
  return made;
}

void ModelCache::remove(Index sequence) {
  for (auto* caches : {&impl_->layers, &impl_->sources})
    for (KvCache& layer : *caches) layer.remove(sequence);
  impl_->tokens.erase(sequence);
}

void ModelCache::truncate(Index sequence, Index tokens) {
  for (KvCache& layer : impl_->layers) layer.truncate(sequence, tokens);
  if (impl_->keeps_tokens) impl_->tokens.at(sequence).ids.resize(to_size(tokens));
}

Index ModelCache::tokens(Index sequence) const { return impl_->layers.front().tokens(sequence); }

Index ModelCache::bytes() const {
  Index bytes = 0;
  for (const auto* caches : {&impl_->layers, &impl_->sources})
    for (const KvCache& layer : *caches) bytes += layer.bytes();
  return bytes;
}

const ModelCache::Options& ModelCache::options() const { return impl_->options; }

}  // namespace rapt
