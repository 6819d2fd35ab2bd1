#include "base/check.h"
#include "model/pass.h"
#include "nn/elementwise.h"

namespace rapt::detail {
namespace {

Tensor copy_of(View x) {
  Tensor copy = Tensor::uninitialized(x.shape());
  std::copy_n(x.data(), copy.elements(), copy.data());
  return copy;
}

/// Joins the columns of two streams to [rows, 2 width], and splits them.
Tensor joined(const ReversibleStreams& streams) {
  const Index rows = streams.x1.shape()[0], width = streams.x1.shape()[1];
  Tensor out = Tensor::uninitialized({rows, 2 * width});
  for (Index r = 0; r < rows; ++r) {
    std::copy_n(streams.x1.data() + r * width, width, out.data() + 2 * r * width);
    std::copy_n(streams.x2.data() + r * width, width, out.data() + (2 * r + 1) * width);
  }
  return out;
}

ReversibleStreams split(const Tensor& both) {
  const Index rows = both.shape()[0], width = both.shape()[1] / 2;
  ReversibleStreams streams{Tensor::uninitialized({rows, width}),
                            Tensor::uninitialized({rows, width})};
  for (Index r = 0; r < rows; ++r) {
    std::copy_n(both.data() + 2 * r * width, width, streams.x1.data() + r * width);
    std::copy_n(both.data() + (2 * r + 1) * width, width, streams.x2.data() + r * width);
  }
  return streams;
}

}  // namespace

/// A norm and one part of the layer, run again in backward. Hashed layers reuse the order of
/// forward, which rounding could change.
Residual Pass::reversible_part(Index site, const StackInput& in, Index index,
                               const Context& context) {
  auto orders = std::make_shared<std::vector<std::shared_ptr<const LshOrder>>>();
  const auto run = [self = shared_from_this(), site, in, index, orders](Tape& tape,
                                                                        const Variable& x) {
    LayerPlace at = self->place(in, index);
    at.orders = orders.get();
    const LayerWeights& weights = in.layer(index);
    Variable y = site == site_attention
                     ? self->attended(tape, self->norm(tape, x, weights.self.norm), in, at)
                     : self->transformed(tape, self->norm(tape, x, weights.ffn_norm), in, at);
    return self->drop(tape, std::move(y), at.dropout.at(site));
  };
  return {.forward =
              [run, context](View x, const DropoutKey&) {
                Tape tape(Tape::Mode::forward, context);
                return Tape::release(run(tape, tape.input(copy_of(x))));
              },
          .backward =
              [run, context](View dy, View x, const DropoutKey&) {
                Tape tape(Tape::Mode::train, context);
                const Variable inner = tape.input(copy_of(x), true);
                const Variable y = run(tape, inner);
                Tensor value = y.value().clone();
                tape.backward(y, copy_of(dy));
                return Recomputed{std::move(value), inner.gradient().clone()};
              }};
}

Variable Pass::reversible(Tape& tape, const Variable& x, const StackInput& in) {
  auto parts = std::make_shared<std::vector<ReversibleLayer>>();
  for (Index i = 0; i < static_cast<Index>(in.weights->layers.size()); ++i)
    parts->push_back({reversible_part(site_attention, in, i, tape.context()),
                      reversible_part(site_ffn, in, i, tape.context())});
  ReversibleStreams y = reversible_forward(*parts, {x.value().clone(), x.value().clone()});
  Tensor both = joined(y);
  if (!tape.records()) return tape.input(std::move(both));
  auto kept = std::make_shared<Variable>();
  const auto undo = [self = shared_from_this(), parts, kept, slot = x.slot(),
                     context = tape.context()](const Tensor& gradient) {
    self->options_.stats = nullptr;  // forward has reported them
    ReversibleGradients g = reversible_backward(*parts, split(kept->value()), split(gradient));
    add_to(g.dx.x1, g.dx.x2, context);
    slot.add(std::move(g.dx.x1));
  };
  const Variable result = tape.record(std::move(both), undo);
  *kept = result;
  return result;
}

}  // namespace rapt::detail
