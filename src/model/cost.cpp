#include "model/cost.h"

namespace rapt {
namespace {

/// Pairs that the pattern of each layer has. Hashed ones are counted as if all chunks were full:
/// every query meets its chunk and the one before, once in each round.
double pairs_of(const std::vector<std::string>& patterns, Index layers, Index tokens) {
  std::vector<double> each;
  for (const std::string& text : patterns) {
    const bool hashed = text.find("lsh") != std::string::npos;
    each.push_back(
        hashed ? 0 : static_cast<double>(Plan(Pattern::parse(text), {tokens, tokens}).pairs()));
  }
  double sum = 0;
  for (Index i = 0; i < layers; ++i) sum += each[static_cast<std::size_t>(i) % each.size()];
  return sum;
}

bool multiplies(const Transformer& model, const Parameter& parameter) {
  const bool table = parameter.name.starts_with("positions") ||
                     parameter.name.find(".positions.") != std::string::npos;
  const bool embedding = parameter.name == "embedding.weight" && !model.config().tied;
  return parameter.value.shape().rank() == 2 && !table && !embedding;
}

}  // namespace

double forward_flops(const Transformer& model, Index items, Index tokens) {
  const ModelConfig& config = model.config();
  double weights = 0;
  for (const Parameter& parameter : model.parameters())
    if (multiplies(model, parameter)) weights += static_cast<double>(parameter.value.elements());
  double pairs = pairs_of(config.patterns, config.layers, tokens);
  if (config.kind == ModelConfig::Kind::encoder_decoder) {
    const double all = static_cast<double>(tokens) * static_cast<double>(tokens);
    pairs += pairs_of(config.encoder_patterns, config.encoder_layers, tokens) +
             all * static_cast<double>(config.layers);
  }
  const double per_item = 2 * weights * static_cast<double>(tokens) +
                          4 * static_cast<double>(config.heads * config.dim()) * pairs;
  return per_item * static_cast<double>(items);
}

}  // namespace rapt
