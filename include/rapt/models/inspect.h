#pragma once

#include <string>
#include <vector>

#include "rapt/models/transformer.h"

namespace rapt {

/// The batch that shapes, arithmetic and memory are counted for.
struct InspectOptions {
  Index batch = 1;
  Index tokens = 512;
  std::optional<Index> sources = {};  // tokens of an encoder-decoder's sources; none: as many
};

/// A part of a model, or one step inside a part. Numbers of a part are those of all it holds.
struct InspectLine {
  Index depth = 0;  // 0: the model
  std::string name = {};
  Index repeats = 1;         // identical layers share a line; its values are those of one of them
  std::string weights = {};  // "[512, 1024] + [512]"
  Shape output = {};         // [batch, tokens, hidden_size] or [batch, heads, tokens, dim]
  std::string note = {};
  Index parameters = 0;  // trainable values
  double flops = 0;      // of forward; a training step takes three times as much
  Index kept_bytes = 0;  // of inputs and results that backward needs
};

/// Memory of activations in a training step.
struct ActivationBytes {
  Index kept = 0;   // from forward to backward
  Index again = 0;  // recomputed by backward, at most at a time
  Index all() const { return kept + again; }
};

/// A model as a table: shapes, parameters, arithmetic, memory.
struct Inspection {
  std::vector<InspectLine> lines;  // a tree from the root; a part comes before what it holds
  Index parameters = 0;
  double flops = 0;                                                 // of a forward pass
  Index weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;  // f32, AdamW
  ActivationBytes plain;                                            // layers keep what they made
  ActivationBytes recomputed;                                       // recompute = true
  ActivationBytes reversed;                                         // reversible = true
  ActivationBytes configured;  // the one that the config chooses
  Index cache_bytes = 0;       // of one token of a sequence that is generated, f32
};

/// Counts a model without making it: no weight is drawn, and no memory is allocated for any.
///
/// Flops are those of products: two for every weight and token, four for every channel and pair
/// that attention computes. Kept bytes are those of a Tape in Mode::train after the loss; backward
/// adds gradients, a few tensors at a time.
/// Throws std::invalid_argument if the config makes no sense, or a pattern does not fit the tokens.
RAPT_API Inspection inspect(const ModelConfig& config, const InspectOptions& options = {});

}  // namespace rapt
