#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rapt/dropout_key.h"
#include "rapt/nn/tape.h"

namespace rapt {

// Operations of a network on a tape. Numbers are f32; a batch of tokens is [rows, width], row after
// row. Each throws std::invalid_argument if shapes disagree, and gives the same bits for any
// number of threads.

/// Rows of a table [vocab_size, width]. Throws std::invalid_argument if an id is not in the table.
RAPT_API Variable embed(Tape& tape, Parameter& table, std::span<const std::int32_t> ids);

/// x · weight' + bias: x [rows, in], weight [out, in], bias [out] or none. The parameters must
/// outlive backward. On a tape that does not record, the weight may be bf16 or f16.
RAPT_API Variable linear(Tape& tape, const Variable& x, Parameter& weight,
                         Parameter* bias = nullptr);

/// (x - mean) / sqrt(variance + epsilon) * gain + shift, along the last axis.
RAPT_API Variable layer_norm(Tape& tape, const Variable& x, Parameter& gain, Parameter* shift,
                             double epsilon = 1e-5);
/// x / sqrt(mean of squares + epsilon) * gain.
RAPT_API Variable rms_norm(Tape& tape, const Variable& x, Parameter& gain, double epsilon = 1e-5);

enum class Activation {
  relu,
  gelu,       // x times the normal distribution function
  gelu_tanh,  // its approximation by tanh: GPT-2, T5 1.1, Gemma
  silu,
};
template <>
inline constexpr EnumNames enum_names<Activation>{"activation", "relu, gelu, gelu_tanh, silu"};
RAPT_API Variable activate(Tape& tape, const Variable& x, Activation how);
/// activate(linear(x)), with the same bits; on a tape that does not record in one pass over memory.
RAPT_API Variable linear_activated(Tape& tape, const Variable& x, Parameter& weight,
                                   Parameter* bias, Activation how);
/// activation(left half) * right half of each row: [rows, 2 width] to [rows, width].
RAPT_API Variable gate(Tape& tape, const Variable& x, Activation how);

RAPT_API Variable add(Tape& tape, const Variable& a, const Variable& b);
RAPT_API Variable scale(Tape& tape, const Variable& x, double factor);
/// Drops on every tape: a model that generates asks for rate 0, which is x itself.
RAPT_API Variable dropout(Tape& tape, const Variable& x, double rate, const DropoutKey& key);

struct CrossEntropy {
  /// Part of a target that is spread evenly over the vocabulary.
  double label_smoothing = 0;
  /// What the loss is divided by; none: the number of targets that count.
  std::optional<double> divisor = {};
  /// Rows whose logits exist at a time.
  Index chunk = 256;
  /// [vocab_size], added to the logits; null: none.
  Parameter* bias = nullptr;
};
struct TokenLoss {
  Variable loss;      // one number: total / divisor
  double total = 0;   // the sum over the targets that count
  Index counted = 0;  // targets that are not negative
  Index correct = 0;  // those whose logit is the largest, the first one if several are
  /// The likeliest token of each row; -1 where no target counts.
  std::vector<std::int32_t> likeliest = {};
};
/// -log softmax(x · head')[target] over the rows whose target is not negative: x [rows, width],
/// head [vocab_size, width], a target for each row. If none counts, the loss is 0.
///
/// Logits exist for a chunk of rows at a time and are computed once: a tape that records computes
/// their gradients at once, and keeps those of x and head. Throws std::invalid_argument if a target
/// is not below vocab_size.
RAPT_API TokenLoss cross_entropy(Tape& tape, const Variable& x, Parameter& head,
                                 std::span<const std::int32_t> targets,
                                 const CrossEntropy& how = {});

}  // namespace rapt
