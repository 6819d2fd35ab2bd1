#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "model/body.h"
#include "nn/weight.h"

namespace rapt {
namespace {

std::optional<Rope> rope_of(const ModelConfig& config) {
  if (config.positions != ModelConfig::Positions::rope) return {};
  RopeOptions options;
  options.dim = config.dim();
  options.base = config.rope_base;
  options.scaling = config.rope_scaling;
  options.layout = config.rope_layout;
  return Rope(options);
}

}  // namespace

Transformer::Body::Body(const ModelConfig& given)
    : config(given), weights(make_weights(config)), rope(rope_of(config)) {}

Transformer::Transformer(const ModelConfig& config) : body_(std::make_unique<Body>(config)) {
  refresh();
}
Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;

const ModelConfig& Transformer::config() const { return body_->config; }
std::span<Parameter> Transformer::parameters() { return body_->weights.parameters; }
std::span<const Parameter> Transformer::parameters() const { return body_->weights.parameters; }

Parameter& Transformer::parameter(const std::string& name) {
  for (Parameter& parameter : parameters())
    if (parameter.name == name) return parameter;
  fail("parameter: the model has none called ", name);
}

Index Transformer::count() const {
  Index numbers = 0;
  for (const Parameter& parameter : parameters()) numbers += parameter.shape().elements();
  return numbers;
}

/// Vectors stay as they are: they are few, and norms multiply by them.
void Transformer::refresh() {
  if (body_->config.weights == Type::f32) return;
  for (Parameter& parameter : parameters())
    if (parameter.value.shape().rank() == 2)
      parameter.working = parameter.value.converted(body_->config.weights);
}

Variable Transformer::forward(Tape& tape, const Tokens& tokens, const PassOptions& options) {
  check(!body_->weights.encoder, "forward: an encoder-decoder without sources, expected some");
  const auto pass = std::make_shared<Pass>(body_->config, body_->weights,
                                           body_->rope_for(tokens.lengths), options);
  if (tape.records()) pass->train();
  const auto layout = std::make_shared<const SequenceLayout>(tokens.lengths);
  return pass->stack(tape, pass->embed(tape, tokens, *layout), {&body_->weights.stack, layout});
}

Variable Transformer::forward(Tape& tape, const Tokens& tokens, const Tokens& sources,
                              const PassOptions& options) {
  check(body_->weights.encoder.has_value(), "forward: sources for a model without an encoder");
  check(tokens.lengths.size() == sources.lengths.size(), "forward: ", tokens.lengths.size(),
        " sequences and sources of ", sources.lengths.size(), ", expected as many");
  const auto pass = std::make_shared<Pass>(body_->config, body_->weights,
                                           body_->rope_for(tokens.lengths), options);
  if (tape.records()) pass->train();
  const auto source_layout = std::make_shared<const SequenceLayout>(sources.lengths);
  const auto layout = std::make_shared<const SequenceLayout>(tokens.lengths);
  const Variable read =
      pass->stack(tape, pass->embed(tape, sources, *source_layout, Pass::stream_sources),
                  {&*body_->weights.encoder, source_layout});
  return pass->stack(
      tape, pass->embed(tape, tokens, *layout),
      {&body_->weights.stack, layout, read, source_layout, body_->config.encoder_layers});
}

TokenLoss Transformer::loss(Tape& tape, const Variable& hidden,
                            std::span<const std::int32_t> targets, const CrossEntropy& how) {
  return cross_entropy(tape, hidden, body_->head(), targets, how);
}

Tensor Transformer::logits(const Tensor& hidden, const Context& context) const {
  const Parameter& head = body_->head();
  check(hidden.shape().rank() == 2 && hidden.shape()[1] == head.shape()[1], "logits: rows ",
        hidden.shape(), ", expected [rows, ", head.shape()[1], "]");
  const Index rows = hidden.shape()[0], width = hidden.shape()[1], entries = head.shape()[0];
  Tensor out = Tensor::uninitialized({rows, entries});
  multiply_weight({hidden.data(), Type::f32, rows, width, width, 1}, head, {out.data(), entries},
                  context);
  return out;
}

}  // namespace rapt
