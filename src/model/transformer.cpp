#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "model/transformer_impl.h"

namespace rapt {
using namespace detail;
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

Transformer::Impl::Impl(const ModelConfig& given, ModelWeights made)
    : config(given), weights(std::move(made)), rope(rope_of(config)) {}

Transformer::Transformer(const ModelConfig& config)
    : impl_(std::make_unique<Impl>(config, make_weights(config))) {
  refresh();
}

Transformer::Transformer(const ModelConfig& config, const WeightSource& source)
    : impl_(std::make_unique<Impl>(config, plan_weights(config))) {
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    Parameter& parameter = parameters()[i];
    const Shape& shape = impl_->weights.plans[i].shape;
    source(parameter, shape);
    const Type type = parameter.value.type();
    check(parameter.shape() == shape && (type == Type::f32 || shape.rank() == 2),
          "model: ", parameter.name, " is ", to_string(type), " of shape ", parameter.shape(),
          ", expected f32, or any type if it is a matrix, of shape ", shape);
  }
  refresh();
}
Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;

const ModelConfig& Transformer::config() const { return impl_->config; }
std::span<Parameter> Transformer::parameters() { return impl_->weights.parameters; }
std::span<const Parameter> Transformer::parameters() const { return impl_->weights.parameters; }

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
  if (impl_->config.weight_type == Type::f32) return;
  for (Parameter& parameter : parameters())
    if (parameter.value.shape().rank() == 2)  // a quantized one has no value
      parameter.rounded = parameter.value.converted(impl_->config.weight_type);
}

namespace {

/// Matrices that products read. Rows of a tied embedding are looked up as well.
std::vector<Parameter*> product_weights(ModelWeights& weights) {
  std::vector<Parameter*> found;
  const auto add = [&](const LinearWeights& layer) {
    if (layer.weight != nullptr) found.push_back(layer.weight);
  };
  const auto add_attention = [&](const AttentionWeights& of) {
    for (const LinearWeights* layer : {&of.in, &of.sources, &of.global, &of.out}) add(*layer);
  };
  const auto add_stack = [&](const StackWeights& stack) {
    for (const LayerWeights& layer : stack.layers) {
      add_attention(layer.self);
      if (layer.cross) add_attention(*layer.cross);
      add(layer.up);
      add(layer.down);
    }
  };
  if (weights.encoder) add_stack(*weights.encoder);
  add_stack(weights.stack);
  add(weights.head_transform);
  add(weights.head);
  return found;
}

}  // namespace

void Transformer::pack(const Context& context) {
  for (Parameter* weight : product_weights(impl_->weights))
    if (!weight->value.empty() && weight->rounded.empty()) weight->pack(context);
}

void Transformer::unpack() {
  for (Parameter& parameter : parameters()) parameter.unpack();
}

Variable Transformer::forward(Tape& tape, const Tokens& tokens, const PassOptions& options) const {
  check(!impl_->weights.encoder, "forward: an encoder-decoder without sources, expected some");
  const auto pass = std::make_shared<Pass>(impl_->config, impl_->weights, options);
  if (tape.records()) pass->train();
  const auto layout = std::make_shared<const SequenceLayout>(tokens.lengths);
  const std::vector<std::uint8_t>& global = tokens.global_attention_mask;
  check(global.empty() || (impl_->config.global_projections && global.size() == tokens.ids.size()),
        "forward: a global_attention_mask of ", global.size(), " for ", tokens.ids.size(),
        " tokens, expected as many, and a model with global_projections");
  StackInput in{&impl_->weights.stack, layout, impl_->ropes_for(tokens.lengths)};
  in.global = global;
  return pass->stack(tape, pass->embed(tape, tokens, *layout), in);
}

Variable Transformer::forward(Tape& tape, const Tokens& tokens, const Tokens& sources,
                              const PassOptions& options) const {
  check(impl_->weights.encoder.has_value(), "forward: sources for a model without an encoder");
  check(tokens.lengths.size() == sources.lengths.size(), "forward: ", tokens.lengths.size(),
        " sequences and sources of ", sources.lengths.size(), ", expected as many");
  const auto pass = std::make_shared<Pass>(impl_->config, impl_->weights, options);
  if (tape.records()) pass->train();
  const auto source_layout = std::make_shared<const SequenceLayout>(sources.lengths);
  const auto layout = std::make_shared<const SequenceLayout>(tokens.lengths);
  const Variable read =
      pass->stack(tape, pass->embed(tape, sources, *source_layout, Pass::stream_sources),
                  {&*impl_->weights.encoder, source_layout, impl_->ropes_for(sources.lengths)});
  return pass->stack(tape, pass->embed(tape, tokens, *layout),
                     {&impl_->weights.stack, layout, impl_->ropes_for(tokens.lengths), read,
                      source_layout, impl_->config.encoder_layers});
}

TokenLoss Transformer::loss(Tape& tape, const Variable& hidden,
                            std::span<const std::int32_t> targets, const CrossEntropy& how) const {
  CrossEntropy with_bias = how;
  with_bias.bias = impl_->weights.head.bias;
  return cross_entropy(tape, impl_->head_rows(tape, hidden), impl_->head(), targets, with_bias);
}

Variable Transformer::Impl::head_rows(Tape& tape, Variable x) {
  if (config.scale_head) x = scale(tape, x, 1 / std::sqrt(static_cast<double>(config.hidden_size)));
  if (!config.mlm_head) return x;
  x = linear(tape, x, *weights.head_transform.weight, weights.head_transform.bias);
  x = activate(tape, x, config.activation);
  return layer_norm(tape, x, *weights.head_norm.gain, weights.head_norm.shift, config.norm_epsilon);
}

Tensor Transformer::logits(const Tensor& hidden, const Context& context) const {
  Parameter& head = impl_->head();
  check(hidden.shape().rank() == 2 && hidden.shape()[1] == head.shape()[1], "logits: rows ",
        hidden.shape(), ", expected [rows, ", head.shape()[1], "]");
  Tape tape(Tape::Mode::forward, context);
  const Variable rows = impl_->head_rows(tape, tape.input(hidden.clone()));
  return Tape::release(linear(tape, rows, head, impl_->weights.head.bias));
}

}  // namespace rapt
