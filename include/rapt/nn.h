#pragma once

#include <cstdint>
#include <span>

#include "rapt/dropout.h"
#include "rapt/tape.h"

namespace rapt {

// Operations of a network on a tape. Numbers are f32; a batch of tokens is [rows, width], row after
// row. Every one throws std::invalid_argument if shapes disagree, and gives the same bits for any
// number of threads.

/// Rows of a table [entries, width]. Throws std::invalid_argument if an id is not in the table.
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
RAPT_API Variable activate(Tape& tape, const Variable& x, Activation how);
/// activation(left half) * right half of each row: [rows, 2 width] to [rows, width].
RAPT_API Variable gate(Tape& tape, const Variable& x, Activation how);

RAPT_API Variable add(Tape& tape, const Variable& a, const Variable& b);
RAPT_API Variable scale(Tape& tape, const Variable& x, double factor);
RAPT_API Variable dropout(Tape& tape, const Variable& x, double rate, const DropoutKey& key);

struct CrossEntropy {
  double label_smoothing = 0;
  /// What the loss is divided by; 0: the number of targets that count.
  double divisor = 0;
  /// Rows whose logits exist at a time.
  Index chunk = 256;
};
/// Mean of -log softmax(x · head')[target] over the rows whose target is not negative: x [rows,
/// width], head [entries, width]. Logits of a chunk of rows exist at a time, forward and backward.
RAPT_API Variable cross_entropy(Tape& tape, const Variable& x, Parameter& head,
                                std::span<const std::int32_t> targets,
                                const CrossEntropy& how = {});

}  // namespace rapt
