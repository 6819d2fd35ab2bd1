#include "rapt/nn/reversible.h"

#include <utility>

#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt {
using namespace detail;
namespace {

/// Sites of the two parts in a layer's key.
constexpr Index site_f = 0, site_g = 1;

DropoutKey key_of(const DropoutKey& key, Index layer, Index site) {
  return {key.seed, key.step, key.layer + layer, site};
}

void add(Tensor& to, const Tensor& more) {
  for (Index i = 0; i < to.elements(); ++i) to.data()[i] += more.data()[i];
}

void subtract(Tensor& from, const Tensor& less) {
  for (Index i = 0; i < from.elements(); ++i) from.data()[i] -= less.data()[i];
}

void check_streams(const char* where, const ReversibleStreams& x) {
  check(x.x1.type() == Type::f32 && x.x2.type() == Type::f32, where, ": streams of ",
        to_string(x.x1.type()), " and ", to_string(x.x2.type()), " given, expected f32");
  check(x.x1.shape() == x.x2.shape(), where, ": streams of shape ", x.x1.shape(), " and ",
        x.x2.shape(), " given, expected the same");
}

/// What a part of the caller gave must fit its input.
const Tensor& fitting(const Tensor& y, const char* part, const char* what, Index layer,
                      const Shape& shape) {
  check(y.type() == Type::f32 && y.shape() == shape, "reversible: ", part, " of layer ", layer,
        " gave ", what, " of shape ", y.shape(), " and type ", to_string(y.type()), ", expected ",
        shape, " and f32");
  return y;
}

void check_layers(const char* where, std::span<const ReversibleLayer> layers, bool backward) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Residual &f = element(layers, i).f, &g = element(layers, i).g;
    check(backward ? f.backward && g.backward : f.forward && g.forward, where, ": a part of layer ",
          i, " has no ", backward ? "backward" : "forward",
          " function, expected one in f and in g");
  }
}

/// Takes one part off: x = y - part(input), and adds its gradient to that of its input.
void undo(const Residual& part, const char* name, const DropoutKey& key, Index layer,
          const Tensor& input, const Tensor& dy, Tensor& y, Tensor& dinput) {
  const Recomputed again = part.backward(dy, input, key);
  subtract(y, fitting(again.y, name, "y", layer, input.shape()));
  add(dinput, fitting(again.dx, name, "dx", layer, input.shape()));
}

}  // namespace

ReversibleStreams reversible_forward(std::span<const ReversibleLayer> layers, ReversibleStreams x,
                                     const DropoutKey& key) {
  check_streams("reversible_forward", x);
  check_layers("reversible_forward", layers, false);
  for (Index i = 0; i < std::ssize(layers); ++i) {
    const ReversibleLayer& layer = element(layers, i);
    const Tensor f = layer.f.forward(x.x2, key_of(key, i, site_f));
    add(x.x1, fitting(f, "f", "y", i, x.x1.shape()));
    const Tensor g = layer.g.forward(x.x1, key_of(key, i, site_g));
    add(x.x2, fitting(g, "g", "y", i, x.x2.shape()));
  }
  return x;
}

ReversibleGradients reversible_backward(std::span<const ReversibleLayer> layers,
                                        ReversibleStreams y, ReversibleStreams dy,
                                        const DropoutKey& key) {
  check_streams("reversible_backward", y);
  check_streams("reversible_backward", dy);
  check_layers("reversible_backward", layers, true);
  check(y.x1.shape() == dy.x1.shape(), "reversible_backward: gradients have shape ", dy.x1.shape(),
        ", expected ", y.x1.shape(), " as the streams have");
  for (Index i = std::ssize(layers) - 1; i >= 0; --i) {
    const ReversibleLayer& layer = element(layers, i);
    undo(layer.g, "g", key_of(key, i, site_g), i, y.x1, dy.x2, y.x2, dy.x1);
    undo(layer.f, "f", key_of(key, i, site_f), i, y.x2, dy.x1, y.x1, dy.x2);
  }
  return {std::move(dy), std::move(y)};
}

}  // namespace rapt
