#pragma once

#include <string>
#include <vector>

#include "rapt/model.h"

namespace rapt {

/// The batch that shapes, arithmetic and memory are counted for.
struct InspectOptions {
  Index batch = 1;
  Index tokens = 512;
  Index sources = 0;  // tokens of an encoder-decoder's sources; 0: as many as tokens
};

/// A part of a model, or one step inside a part. Numbers of a part are those of all it holds.
struct InspectLine {
  Index depth = 0;  // 0: the model
  std::string name = {};
  Index repeats = 1;         // layers that are alike share a line; its numbers are of one of them
  std::string weights = {};  // "[512, 1024] + [512]"
  Shape output = {};      // of what it makes, [batch, tokens, width] or [batch, heads, tokens, dim]
  std::string note = {};  // what else there is to say
  Index parameters = 0;   // numbers to learn
  double flops = 0;       // of forward; a training step takes three times as much
  Index kept_bytes = 0;   // of inputs and results that backward needs
};

/// What a training step holds of what the layers made.
struct ActivationBytes {
  Index kept = 0;   // from forward to backward
  Index again = 0;  // what backward makes anew, most at a time
  Index all() const { return kept + again; }
};

/// A model as a table: shapes, parameters, arithmetic, memory.
struct Inspection {
  std::vector<InspectLine> lines;  // a tree from the root; a part stands before what it holds
  Index parameters = 0;
  double flops = 0;                                                 // of a forward pass
  Index weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;  // f32, AdamW
  ActivationBytes plain;                                            // layers keep what they made
  ActivationBytes recomputed;                                       // recompute = true
  ActivationBytes reversed;                                         // reversible = true
  ActivationBytes configured;  // whichever of them the config says
  Index cache_bytes = 0;       // of one token of a sequence that is generated, f32
};

/// Counts a model without making it: no weight is drawn, and no memory taken for any.
///
/// Flops are those of products: two for every weight and token, four for every channel and pair
/// that attention looks at. Kept bytes are those of a Tape in Mode::train after the loss; the
/// gradients that travel through backward come on top, a few tensors at a time.
/// Throws std::invalid_argument if the config makes no sense, or a pattern does not fit the tokens.
RAPT_API Inspection inspect(const ModelConfig& config, const InspectOptions& options = {});

}  // namespace rapt
