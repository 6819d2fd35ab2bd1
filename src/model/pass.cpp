#include "model/pass.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "nn/elementwise.h"
#include "rapt/positions.h"

namespace rapt::detail {
namespace {

DropoutKey key_of(const DropoutKey& key, Index layer) { return {key.seed, key.step, layer, 0}; }

}  // namespace

Pass::Pass(const ModelConfig& config, ModelWeights& weights, const PassOptions& options,
           const CacheUse& use)
    : config_(config), weights_(weights), options_(options), use_(use) {
  for (const Index sequence : use.sequences) firsts_.push_back(use.cache->tokens(sequence));
}

Variable Pass::norm(Tape& tape, const Variable& x, const NormWeights& weights) {
  if (weights.gain == nullptr) return x;
  if (config_.norm == ModelConfig::Norm::rms)
    return rms_norm(tape, x, *weights.gain, config_.norm_epsilon);
  return layer_norm(tape, x, *weights.gain, weights.shift, config_.norm_epsilon);
}

Variable Pass::linear(Tape& tape, const Variable& x, const LinearWeights& weights) {
  return rapt::linear(tape, x, *weights.weight, weights.bias);
}

Variable Pass::drop(Tape& tape, Variable x, const DropoutKey& key) {
  if (config_.dropout == 0 || !trains_) return x;
  return dropout(tape, std::move(x), config_.dropout, key);
}

Index Pass::first_position(Index sequence) const { return firsts_.empty() ? 0 : firsts_[sequence]; }

std::vector<Index> Pass::positions_of(const SequenceLayout& layout) const {
  std::vector<Index> positions;
  Index sequence = 0;
  for (const Index length : layout.lengths()) {
    const Index first = first_position(sequence++);
    for (Index t = 0; t < length; ++t) positions.push_back(first + t);
  }
  return positions;
}

/// Rows of the table of learned positions. Padding tokens have the row before the first and are not
/// counted.
std::vector<std::int32_t> Pass::learned_rows(const Tokens& tokens,
                                             const SequenceLayout& layout) const {
  std::vector<std::int32_t> rows;
  std::size_t at = 0;
  Index sequence = 0, last = 0;
  for (const Index length : layout.lengths()) {
    Index position = first_position(sequence++);
    for (Index t = 0; t < length; ++t) {
      const bool padding = tokens.ids[at++] == config_.pad_token;
      last = std::max(last, position - (padding ? 1 : 0));
      rows.push_back(
          static_cast<std::int32_t>(config_.position_offset + (padding ? -1 : position++)));
    }
  }
  check(last < config_.max_positions, "forward: position ", last,
        ", but positions are learned for ", config_.max_positions, " tokens (max_positions)");
  return rows;
}

Variable Pass::with_positions(Tape& tape, Variable x, const Tokens& tokens,
                              const SequenceLayout& layout) {
  using enum ModelConfig::Positions;
  if (config_.positions == sinusoidal) {
    Tensor table = rapt::sinusoidal({.dim = config_.hidden_size}, positions_of(layout));
    return add(tape, x, tape.input(std::move(table)));
  }
  if (config_.positions == learned)
    return add(tape, x, rapt::embed(tape, *weights_.positions, learned_rows(tokens, layout)));
  if (config_.positions == axial) return add(tape, x, axial_rows(tape, positions_of(layout)));
  return x;
}

Variable Pass::with_types(Tape& tape, Variable x, const Tokens& tokens) {
  check(tokens.type_ids.empty() || tokens.type_ids.size() == tokens.ids.size(),
        "forward: ", tokens.type_ids.size(), " type_ids for ", tokens.ids.size(), " tokens");
  check(tokens.type_ids.empty() || weights_.types != nullptr,
        "forward: type_ids, but the model has no token types");
  if (weights_.types == nullptr) return x;
  const std::vector<std::int32_t> none(tokens.ids.size());
  return add(tape, x,
             rapt::embed(tape, *weights_.types, tokens.type_ids.empty() ? none : tokens.type_ids));
}

/// The rows and columns of the grid as one operation.
Variable Pass::axial_rows(Tape& tape, const std::vector<Index>& positions) {
  Parameter &rows = *weights_.axial[0], &columns = *weights_.axial[1];
  const auto axial = [&rows, &columns] { return Axial{rows.value, columns.value}; };
  const auto count = static_cast<Index>(positions.size());
  const Tensor batch = axial_positions(axial(), {1, count}, Positions::list(positions));
  Tensor flat = Tensor::uninitialized({count, config_.hidden_size});
  std::copy_n(batch.data(), batch.elements(), flat.data());
  const auto undo = [=, &rows, &columns, context = tape.context()](const Tensor& gradient) {
    const Shape shape{1, count, gradient.shape()[1]};
    const AxialGradients g =
        axial_positions_backward(View::unchecked(gradient.data(), shape, shape.row_major()),
                                 axial(), Positions::list(positions));
    add_to(rows.gradient_or_zeros(), g.drows, context);
    add_to(columns.gradient_or_zeros(), g.dcolumns, context);
  };
  return tape.record(std::move(flat), undo);
}

Variable Pass::embed(Tape& tape, const Tokens& tokens, const SequenceLayout& layout,
                     Stream stream) {
  check(weights_.embedding != nullptr, "forward: the model has no vocab_size, expected one");
  check(static_cast<Index>(tokens.ids.size()) == layout.rows(), "forward: ", tokens.ids.size(),
        " ids in sequences of ", layout.rows(), " tokens");
  Variable x = rapt::embed(tape, *weights_.embedding, tokens.ids);
  if (config_.scale_embeddings)
    x = scale(tape, x, std::sqrt(static_cast<double>(config_.hidden_size)));
  x = with_types(tape, std::move(x), tokens);
  x = with_positions(tape, std::move(x), tokens, layout);
  x = norm(tape, x, weights_.embedding_norm);
  return drop(tape, std::move(x), key_of(options_.dropout, stream).at(site_embedding));
}

Variable Pass::residual(Tape& tape, const Variable& x, const NormWeights& weights, const Part& part,
                        const DropoutKey& key) {
  const bool before = config_.norm_position == ModelConfig::NormPosition::pre;
  Variable y = drop(tape, part(before ? norm(tape, x, weights) : x), key);
  y = add(tape, x, y);
  return before ? y : norm(tape, y, weights);
}

Variable Pass::transformed(Tape& tape, const Variable& x, const StackInput& in,
                           const LayerPlace& at) {
  const LayerWeights& weights = in.layer(at.layer);
  const Variable y = config_.gated ? gate(tape, linear(tape, x, weights.up), config_.activation)
                                   : linear_activated(tape, x, *weights.up.weight, weights.up.bias,
                                                      config_.activation);
  return linear(tape, y, weights.down);
}

Pass::LayerPlace Pass::place(const StackInput& in, Index index) const {
  return {index, key_of(options_.dropout, in.first_layer + index)};
}

Variable Pass::layer(Tape& tape, Variable x, const StackInput& in, Index index) {
  const LayerWeights& weights = in.layer(index);
  const LayerPlace at = place(in, index);
  const auto attend = [&](const Variable& y) { return attended(tape, y, in, at); };
  const auto cross = [&](const Variable& y) { return crossed(tape, y, in, at); };
  const auto transform = [&](const Variable& y) { return transformed(tape, y, in, at); };
  x = residual(tape, x, weights.self.norm, attend, at.dropout.at(site_attention));
  if (weights.cross) x = residual(tape, x, weights.cross->norm, cross, at.dropout.at(site_cross));
  return residual(tape, x, weights.ffn_norm, transform, at.dropout.at(site_ffn));
}

/// Keeps the input of the layer and none of its results; backward runs it again.
Variable Pass::recomputed(Tape& tape, const Variable& x, const StackInput& in, Index index) {
  Tape once(Tape::Mode::forward, tape.context());
  Tensor value = Tape::release(layer(once, x, in, index));
  const auto undo = [self = shared_from_this(), x, in, index,
                     context = tape.context()](Tensor gradient) {
    self->options_.stats = nullptr;  // forward has reported them
    Tape again(Tape::Mode::train, context);
    const Variable inner = again.detach(x);
    StackInput inside = in;
    if (!in.sources.empty()) inside.sources = again.detach(in.sources);
    again.backward(self->layer(again, inner, inside, index), std::move(gradient));
    x.slot().add(inner.gradient().clone());
    if (!in.sources.empty()) in.sources.slot().add(inside.sources.gradient().clone());
  };
  return tape.record(std::move(value), undo);
}

Variable Pass::stack(Tape& tape, Variable x, const StackInput& in) {
  x = config_.reversible ? reversible(tape, x, in) : layers(tape, std::move(x), in);
  return norm(tape, x, in.weights->final_norm);
}

Variable Pass::layers(Tape& tape, Variable x, const StackInput& in) {
  for (Index i = 0; i < static_cast<Index>(in.weights->layers.size()); ++i)
    x = config_.recompute && tape.records() ? recomputed(tape, x, in, i)
                                            : layer(tape, std::move(x), in, i);
  return x;
}

}  // namespace rapt::detail
