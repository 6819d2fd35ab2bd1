#pragma once

#include <functional>
#include <span>

#include "rapt/dropout_key.h"

namespace rapt {

/// The result of the backward pass of a residual part: its output again, and the gradient of its
/// input.
struct Recomputed {
  Tensor y, dx;
};

/// One part of a reversible layer, as functions of the caller. Both must compute the same y from
/// the same x and key, dropout included. What a part chose by its numbers (the order of hashed
/// attention, Rows::order) it must keep from forward for backward, because the recomputed x has
/// rounding errors.
struct Residual {
  std::function<Tensor(View x, const DropoutKey& key)> forward;
  /// The caller adds up parameter gradients.
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

/// All layers in order. Only the output is kept: memory does not grow with the number of layers.
/// Layer i gets the key with layer = key.layer + i, f at site 0 and g at site 1. Throws
/// std::invalid_argument if shapes disagree.
RAPT_API ReversibleStreams reversible_forward(std::span<const ReversibleLayer> layers,
                                              ReversibleStreams x, const DropoutKey& key = {});

struct ReversibleGradients {
  ReversibleStreams dx;
  ReversibleStreams x;  // the inputs, recomputed
};

/// From the outputs of reversible_forward and their gradients to the gradients of its inputs. Every
/// part runs again, with the key of forward, and inputs are recomputed by subtraction.
RAPT_API ReversibleGradients reversible_backward(std::span<const ReversibleLayer> layers,
                                                 ReversibleStreams y, ReversibleStreams dy,
                                                 const DropoutKey& key = {});

}  // namespace rapt
