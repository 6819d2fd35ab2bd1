#pragma once

#include <functional>
#include <span>

#include "rapt/dropout.h"

namespace rapt {

/// What the backward pass of a residual part gives: its output once more, and the gradient of its
/// input.
struct Recomputed {
  Tensor y, dx;
};

/// One part of a reversible layer, as functions of the caller. Both must compute the same y from
/// the same x and key, dropout included; what a part chose by its numbers (the order of hashed
/// attention, Rows::order) it keeps from forward for backward, because x comes back with rounding.
struct Residual {
  std::function<Tensor(View x, const DropoutKey& key)> forward;
  /// Parameter gradients go wherever the caller keeps them.
  std::function<Recomputed(View dy, View x, const DropoutKey& key)> backward;
};

/// y1 = x1 + f(x2), y2 = x2 + g(y1). In Reformer f is attention and g the feed-forward network,
/// each with its norm.
struct ReversibleLayer {
  Residual f, g;
};

/// f32, row-major, both of the same shape.
struct ReversibleStreams {
  Tensor x1, x2;
};

/// All layers, one after the other. Nothing is kept but what comes out: memory does not grow with
/// the layers. Layer i gets the key with layer = key.layer + i, f at site 0 and g at site 1.
/// Throws std::invalid_argument if shapes disagree.
RAPT_API ReversibleStreams reversible_forward(std::span<const ReversibleLayer> layers,
                                              ReversibleStreams x, const DropoutKey& key = {});

struct ReversibleGradients {
  ReversibleStreams dx;
  ReversibleStreams x;  // what went in, computed back
};

/// From the outputs of reversible_forward and their gradients to those of its inputs. Every part
/// runs once more, with the key of forward, and inputs are found by subtraction.
RAPT_API ReversibleGradients reversible_backward(std::span<const ReversibleLayer> layers,
                                                 ReversibleStreams y, ReversibleStreams dy,
                                                 const DropoutKey& key = {});

}  // namespace rapt
