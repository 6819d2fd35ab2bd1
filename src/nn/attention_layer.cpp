#include "rapt/attention_layer.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "nn/elementwise.h"
#include "rapt/nn.h"

namespace rapt {
namespace {

struct RowsAndWidth {
  Index count, width;
};

RowsAndWidth rows_of(const char* where, const Tensor& x, const HeadShape& shape) {
  check(x.shape().rank() == 2, where, ": shape ", x.shape(), ", expected [rows, width]");
  check(shape.items >= 1 && shape.heads >= 1 && shape.dim >= 1, where, ": ", shape.items,
        " items, ", shape.heads, " heads of ", shape.dim, " given, expected at least 1 of each");
  check(x.shape()[0] % shape.items == 0, where, ": ", x.shape()[0], " rows of ", shape.items,
        " items, expected a multiple");
  return {x.shape()[0], x.shape()[1]};
}

/// [items, heads, tokens, dim] of columns in [rows, width].
template <class T>
BasicView<T> heads_in(T* data, RowsAndWidth rows, const HeadShape& shape, Index first) {
  const Index tokens = rows.count / shape.items;
  return BasicView<T>::trusted(data + first, {shape.items, shape.heads, tokens, shape.dim},
                               {tokens * rows.width, shape.dim, rows.width, 1});
}

View view_of(const HeadColumns& columns, const HeadShape& shape) {
  const Tensor& x = columns.of.value();
  const RowsAndWidth rows = rows_of("attention", x, shape);
  check(columns.first >= 0 && columns.first + shape.heads * shape.dim <= rows.width,
        "attention: heads reach from column ", columns.first, " to ",
        columns.first + shape.heads * shape.dim, " of ", rows.width);
  return heads_in(x.data(), rows, shape, columns.first);
}

HeadShape keys_of(const HeadShape& shape, Index kv_heads) {
  return {shape.items, kv_heads, shape.dim};
}

/// What backward needs of one call.
struct Kept {
  HeadColumns q, k, v;
  HeadShape shape;
  Index kv_heads;
  Attention how;
  Parameter* table;
  Variable out;
  Rows rows;
};

/// Where gradients of columns go: one tensor for each variable that is read, however many of its
/// columns are. Columns that nobody reads have none.
class ColumnGradients {
 public:
  /// Memory for the gradient of some columns, which must not be asked for twice.
  MutableView of(const HeadColumns& columns, const HeadShape& shape) {
    const Shape& whole = columns.of.shape();
    Tensor& sum = sum_of(columns.of);
    return heads_in(sum.data(), {whole[0], whole[1]}, shape, columns.first);
  }
  void hand_over() {
    for (Entry& entry : entries_) entry.slot.add(std::move(entry.sum));
  }

 private:
  struct Entry {
    GradientSlot slot;
    const Tensor* value;
    Tensor sum;
  };
  Tensor& sum_of(const Variable& x) {
    for (Entry& entry : entries_)
      if (entry.value == &x.value()) return entry.sum;
    return entries_.emplace_back(Entry{x.slot(), &x.value(), Tensor(x.shape())}).sum;
  }
  std::vector<Entry> entries_;
};

void add_rows(const View& more, const MutableView& to) {
  for (Index item = 0; item < to.batch(); ++item)
    for (Index head = 0; head < to.heads(); ++head)
      for (Index i = 0; i < to.tokens(); ++i)
        std::transform(more.row(item, head, i), more.row(item, head, i) + to.dim(),
                       to.row(item, head, i), to.row(item, head, i), std::plus<>());
}

void undo_attention(const Kept& kept, const Tensor& gradient, const Context& context) {
  const HeadShape keys = keys_of(kept.shape, kept.kv_heads);
  const View q = view_of(kept.q, kept.shape), k = view_of(kept.k, keys), v = view_of(kept.v, keys);
  const RowsAndWidth rows{gradient.shape()[0], gradient.shape()[1]};
  ColumnGradients sums;
  const MutableView dq = sums.of(kept.q, kept.shape), dv = sums.of(kept.v, keys);
  // Shared vectors have two gradients, which are added up.
  const bool shared = k.data() == q.data();
  Tensor apart = shared ? Tensor::uninitialized(k.shape()) : Tensor();
  const MutableView dk = shared ? apart.view() : sums.of(kept.k, keys);
  const Gradients g = attend_backward_into(
      {dq, dk, dv}, heads_in(gradient.data(), rows, kept.shape, 0), q, k, v,
      heads_in(kept.out.value().data(), rows, kept.shape, 0), kept.rows, kept.how, context);
  if (shared) add_rows(dk, dq);
  sums.hand_over();
  if (kept.table != nullptr) add_to(kept.table->wanted_gradient(), g.dtable, context);
}

}  // namespace

Variable attention(Tape& tape, const HeadColumns& q, const HeadColumns& k, const HeadColumns& v,
                   const HeadShape& shape, Index kv_heads, const Attention& how,
                   const AttentionExtras& extras) {
  const HeadShape keys = keys_of(shape, kv_heads);
  const View queries = view_of(q, shape);
  const RowsAndWidth rows{q.of.shape()[0], shape.heads * shape.dim};
  Tensor out = Tensor::uninitialized({rows.count, rows.width});
  Attended attended = attend_into(heads_in(out.data(), rows, shape, 0), queries, view_of(k, keys),
                                  view_of(v, keys), how, tape.context());
  if (extras.seen) extras.seen(attended);
  if (!tape.records()) return tape.input(std::move(out));
  auto kept = std::make_shared<Kept>(
      Kept{q, k, v, shape, kv_heads, how, extras.table, {}, std::move(attended.rows)});
  Variable result = tape.made(std::move(out), [kept, context = tape.context()](Tensor gradient) {
    undo_attention(*kept, gradient, context);
  });
  kept->out = result;
  return result;
}

Variable rotate(Tape& tape, Variable x, const HeadShape& shape, const Rope& rope,
                const std::vector<Index>& positions, Index first) {
  const RowsAndWidth rows = rows_of("rotate", x.value(), shape);
  check(shape.heads * shape.dim <= rows.width, "rotate: ", shape.heads, " heads of ", shape.dim,
        " given, more than a row of ", rows.width);
  check(positions.empty() || static_cast<Index>(positions.size()) == rows.count,
        "rotate: ", positions.size(), " positions of ", rows.count, " rows");
  const GradientSlot slot = x.slot();
  Tensor turned = Tape::take(std::move(x));
  const auto where = [=](const std::vector<Index>& list) {
    return list.empty() ? Positions(first) : Positions::list(list);
  };
  rope.apply(heads_in(turned.data(), rows, shape, 0), where(positions), tape.context());
  if (!tape.records()) return tape.input(std::move(turned));
  return tape.made(std::move(turned), [=, context = tape.context()](Tensor gradient) {
    rope.apply_backward(heads_in(gradient.data(), rows, shape, 0), where(positions), context);
    slot.add(std::move(gradient));
  });
}

namespace {

/// [rows * heads, dim]: every head a row of its own.
Variable heads_as_rows(Tape& tape, const HeadColumns& x, const HeadShape& shape) {
  const View from = view_of(x, {1, shape.heads, shape.dim});
  const Index rows = from.tokens();
  Tensor apart = Tensor::uninitialized({rows * shape.heads, shape.dim});
  for (Index r = 0; r < rows; ++r)
    std::copy_n(from.row(0, 0, r), shape.heads * shape.dim,
                apart.data() + r * shape.heads * shape.dim);
  const auto undo = [slot = x.of.slot(), whole = x.of.shape(), first = x.first,
                     numbers = shape.heads * shape.dim](const Tensor& gradient) {
    Tensor to(whole);
    for (Index r = 0; r < whole[0]; ++r)
      std::copy_n(gradient.data() + r * numbers, numbers, to.data() + r * whole[1] + first);
    slot.add(std::move(to));
  };
  return tape.made(std::move(apart), undo);
}

Variable reshaped(Tape& tape, Variable x, const Shape& shape) {
  const auto undo = [slot = x.slot(), before = x.shape()](Tensor gradient) {
    slot.add(std::move(gradient).reshaped(before));
  };
  return tape.made(Tape::take(std::move(x)).reshaped(shape), undo);
}

}  // namespace

Variable head_norm(Tape& tape, const HeadColumns& x, const HeadShape& shape, Parameter& gain,
                   double epsilon) {
  const Index rows = x.of.shape()[0];
  Variable normed = rms_norm(tape, heads_as_rows(tape, x, shape), gain, epsilon);
  return reshaped(tape, std::move(normed), {rows, shape.heads * shape.dim});
}

}  // namespace rapt
