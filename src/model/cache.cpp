#include "model/cache.h"

#include <algorithm>

#include "base/check.h"
#include "model/body.h"

namespace rapt {

ModelCache::ModelCache(const Transformer& model, const Options& options, const Context& context)
    : body_(std::make_unique<Body>()) {
  const ModelConfig& config = model.config();
  check(config.kind != ModelConfig::Kind::encoder,
        "ModelCache: the model is an encoder, expected one that writes tokens");
  check(!config.reversible, "ModelCache: reversible layers have no cache yet");
  body_->options = options;
  for (const LayerWeights& layer : model.body_->weights.stack.layers) {
    check(layer.pattern.text().find("lsh") == std::string::npos, "ModelCache: a layer has ",
          layer.pattern.text(), ", whose order changes with every token, expected no lsh");
    body_->layers.emplace_back(CacheOptions{.kv_heads = config.kv_count(),
                                            .dim = config.dim(),
                                            .type = options.type,
                                            .window = options.window,
                                            .pinned = options.pinned},
                               context);
  }
}
ModelCache::~ModelCache() = default;
ModelCache::ModelCache(ModelCache&&) noexcept = default;
ModelCache& ModelCache::operator=(ModelCache&&) noexcept = default;

Index ModelCache::add() {
  Index sequence = 0;
  for (KvCache& layer : body_->layers) sequence = layer.add();
  return sequence;
}

Index ModelCache::fork(Index sequence) {
  Index made = 0;
  for (KvCache& layer : body_->layers) made = layer.fork(sequence);
  if (const auto found = body_->sources.find(sequence); found != body_->sources.end())
    body_->sources[made] = found->second;
  return made;
}

void ModelCache::remove(Index sequence) {
  for (KvCache& layer : body_->layers) layer.remove(sequence);
  body_->sources.erase(sequence);
}

void ModelCache::truncate(Index sequence, Index tokens) {
  for (KvCache& layer : body_->layers) layer.truncate(sequence, tokens);
}

Index ModelCache::tokens(Index sequence) const { return body_->layers.front().tokens(sequence); }

Index ModelCache::bytes() const {
  Index bytes = 0;
  for (const KvCache& layer : body_->layers) bytes += layer.bytes();
  return bytes;
}

const ModelCache::Options& ModelCache::options() const { return body_->options; }

void Transformer::encode(const Tokens& sources, ModelCache& cache, std::span<const Index> sequences,
                         const Context& context) {
  check(body_->weights.encoder.has_value(), "encode: the model has no encoder");
  check(sources.lengths.size() == sequences.size(), "encode: ", sources.lengths.size(),
        " sources for ", sequences.size(), " sequences, expected as many");
  Tape tape(Tape::Mode::forward, context);
  const auto pass =
      std::make_shared<Pass>(body_->config, body_->weights, body_->rope_or_null(), PassOptions{});
  const auto layout = std::make_shared<const SequenceLayout>(sources.lengths);
  const Variable read =
      pass->stack(tape, pass->embed(tape, sources, *layout), {&*body_->weights.encoder, layout});
  const Index width = read.shape()[1];
  const float* from = read.value().data();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Tensor mine = Tensor::uninitialized({sources.lengths[i], width});
    std::copy_n(from, mine.elements(), mine.data());
    from += mine.elements();
    cache.body().sources[sequences[i]] = std::make_shared<const Tensor>(std::move(mine));
  }
}

Tensor Transformer::extend(const Tokens& tokens, ModelCache& cache,
                           std::span<const Index> sequences, const Context& context) {
  check(tokens.lengths.size() == sequences.size(), "extend: ", tokens.lengths.size(),
        " sequences of tokens for ", sequences.size(), " of the cache, expected as many");
  Tape tape(Tape::Mode::forward, context);
  const auto pass = std::make_shared<Pass>(body_->config, body_->weights, body_->rope_or_null(),
                                           PassOptions{}, CacheUse{&cache, sequences});
  const auto layout = std::make_shared<const SequenceLayout>(tokens.lengths);
  StackInput in{&body_->weights.stack, layout};
  if (body_->weights.encoder) {
    std::vector<Index> lengths;
    Index rows = 0;
    for (const Index sequence : sequences) {
      const auto found = cache.body().sources.find(sequence);
      check(found != cache.body().sources.end(), "extend: sequence ", sequence,
            " has no sources yet, expected encode first");
      lengths.push_back(found->second->shape()[0]);
      rows += lengths.back();
    }
    Tensor all = Tensor::uninitialized({rows, body_->config.width});
    float* to = all.data();
    for (const Index sequence : sequences) {
      const Tensor& mine = *cache.body().sources[sequence];
      to = std::copy_n(mine.data(), mine.elements(), to);
    }
    in.sources = tape.input(std::move(all));
    in.source_layout = std::make_shared<const SequenceLayout>(std::move(lengths));
  }
  return Tape::take(pass->stack(tape, pass->embed(tape, tokens, *layout), in));
}

}  // namespace rapt
