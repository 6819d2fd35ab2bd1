#pragma once

#include <string>
#include <vector>

#include "rapt/models/transformer.h"

namespace rapt::test {

// Small Transformers of every kind, and what their tests share.

struct ModelCase {
  std::string name;
  ModelConfig config;
};

/// Two layers, two heads of 8, 13 tokens: what cases start from.
ModelConfig tiny_config();
/// d_model 1024, 4 heads of 192, ffn 512, 12 + 8 layers: worked out by hand in the specification.
ModelConfig worked_example();
/// One case for every thing a config may say.
std::vector<ModelCase> model_cases();
/// Those whose tokens stay what they are when others follow, so that a cache continues as if all
/// had been read at once.
std::vector<ModelCase> cached_model_cases();
/// Those whose last layer alone hashes, or whose angles follow the length: the newest tokens of a
/// cache are those of one pass over all, but earlier ones change in such a pass.
std::vector<ModelCase> growing_model_cases();
/// Whether a layer hashes.
bool hashes(const ModelConfig& config);

/// First weights plus noise on all of them: biases that are zero and gains that are one hide
/// mistakes.
Transformer noisy_model(const ModelConfig& config, std::uint64_t seed = 1);

/// Tokens, targets (a few of which do not count) and sources for encoder-decoders.
struct Sample {
  Tokens tokens, sources;
  std::vector<std::int32_t> targets;
};
/// Sequences of these lengths; sources are longer by one, two, three, one, ...
Sample sample_of(const ModelConfig& config, const std::vector<Index>& lengths,
                 std::uint64_t seed = 1);
Tokens random_tokens(Index vocabulary, const std::vector<Index>& lengths, std::uint64_t seed);
/// One sequence of a sample.
Sample sequence_of(const Sample& sample, Index index);

/// What training a model on a sample gives.
struct ModelAnswer {
  double loss = 0;
  Tensor hidden;
  std::vector<Tensor> gradients;  // of the parameters, in their order; zeros where none came
};
ModelAnswer answer_of(Transformer& model, const Sample& sample, const Context& context = {});
/// The loss alone, dropout included.
double loss_of(Transformer& model, const Sample& sample);
/// [tokens, width] without dropout.
Tensor hidden_of(Transformer& model, const Sample& sample, const Context& context = {});

/// Layers that numbers pass on their way.
inline Index depth(const ModelConfig& config) { return config.layers + config.encoder_layers; }
/// Where each of some sequences begins among all tokens.
std::vector<Index> starts_of(const std::vector<Index>& lengths);

/// The largest size of a number.
double largest(const Tensor& x);
/// Rows first, first + 1, ..., of [rows, width].
Tensor rows_of(const Tensor& x, Index first, Index count);

/// "" if no number differs by more than `units` * u32 * layers * the largest number: the bound of
/// whole models.
std::string beyond_model_bound(const std::string& what, const Tensor& got, const Tensor& want,
                               Index layers, double units = 64);

}  // namespace rapt::test
