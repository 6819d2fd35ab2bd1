#include "rapt/nn/attention.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "kernels/context.h"
#include "nn/elementwise.h"
#include "rapt/nn/functional.h"

namespace rapt {
using namespace detail;
namespace {

struct RowsAndWidth {
  Index count, width;
};

RowsAndWidth rows_and_width(const char* where, const Tensor& x, const HeadShape& shape) {
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
  return BasicView<T>::unchecked(data + first, {shape.items, shape.heads, tokens, shape.dim},
                                 {tokens * rows.width, shape.dim, rows.width, 1});
}

View view_of(const HeadColumns& columns, const HeadShape& shape) {
  const Tensor& x = columns.of.value();
  const RowsAndWidth rows = rows_and_width("attention", x, shape);
  check(columns.first >= 0 && columns.first + shape.heads * shape.dim <= rows.width,
        "attention: heads reach from column ", columns.first, " to ",
        columns.first + shape.heads * shape.dim, " of ", rows.width);
  return heads_in(x.data(), rows, shape, columns.first);
}

/// Sequences of so many tokens together are all rows.
void check_apart(const char* where, const Tensor& x, const HeadShape& shape, Index tokens) {
  const RowsAndWidth rows = rows_and_width(where, x, shape);
  check(shape.items == 1, where, ": ", shape.items, " items, expected 1 for sequences apart");
  check(tokens == rows.count, where, ": sequences of ", tokens, " tokens in ", rows.count, " rows");
}

/// One call of the engine, and what its backward needs.
struct LayerCall {
  View q, k, v;
  MutableView out;
  Attention how;
  Rows rows = {};
};

/// What backward needs of an operation.
struct Kept {
  HeadColumns q, k, v;
  IndexedVector<LayerCall> calls;
  Parameter* table;
  Variable out = {};
};

/// The same place in other memory.
MutableView moved(const View& view, const Tensor& from, float* to) {
  return MutableView::unchecked(to + (view.data() - from.data()), view.shape(), view.strides());
}

/// Where gradients of columns go: one tensor for each variable that is read, however many of its
/// columns are. Columns that nothing reads have none.
class ColumnGradients {
 public:
  /// Memory for the gradient of what a view shows of a variable, which must not be asked for twice.
  MutableView of(const HeadColumns& columns, const View& view) {
    return moved(view, columns.of.value(), sum_of(columns.of).data());
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

void undo_call(const Kept& kept, const LayerCall& call, Tensor& gradient, ColumnGradients& sums,
               const Context& context) {
  const MutableView dq = sums.of(kept.q, call.q), dv = sums.of(kept.v, call.v);
  // Shared vectors have two gradients, which are added up.
  const bool shared = call.k.data() == call.q.data();
  Tensor apart = shared ? Tensor::uninitialized(call.k.shape()) : Tensor();
  const MutableView dk = shared ? apart.view() : sums.of(kept.k, call.k);
  const Gradients g =
      attend_backward_into({dq, dk, dv}, moved(call.out, kept.out.value(), gradient.data()), call.q,
                           call.k, call.v, {call.out, call.rows}, call.how, context);
  if (shared) add_rows(dk, dq);
  if (kept.table != nullptr) add_to(kept.table->gradient_or_zeros(), g.dtable, context);
}

/// Runs calls that write into `out`: short ones in parallel, on several threads each.
Variable run(Tape& tape, Tensor out, Kept given, const AttentionExtras& extras) {
  if (extras.before_call)
    for (LayerCall& call : given.calls) extras.before_call(call.q, call.k, call.v, call.how);
  IndexedVector<Attended> attended(given.calls.size());
  for_each_task(tape.context(), std::ssize(given.calls), [&](Index task, Index) {
    const LayerCall& call = given.calls[task];
    attended[task] = attend_into(call.out, call.q, call.k, call.v, call.how, tape.context());
  });
  for (std::size_t i = 0; i < attended.size(); ++i) {
    if (extras.after_call) extras.after_call(attended[i]);
    given.calls[i].rows = std::move(attended[i].rows);
  }
  if (!tape.records()) return tape.input(std::move(out));
  auto kept = std::make_shared<Kept>(std::move(given));
  Variable result = tape.record(std::move(out), [kept, context = tape.context()](Tensor gradient) {
    ColumnGradients sums;
    for (const LayerCall& call : kept->calls) undo_call(*kept, call, gradient, sums, context);
    sums.hand_over();
  });
  kept->out = result;
  return result;
}

/// Some tokens of a view of one item, or as many for each of several items.
template <class T>
BasicView<T> tokens_of(const BasicView<T>& x, Index first, Index count, Index items = 1) {
  const Index step = x.strides()[2];
  return BasicView<T>::unchecked(x.data() + first * step, {items, x.heads(), count, x.dim()},
                                 {count * step, x.strides()[1], step, 1});
}

}  // namespace

Variable attention(Tape& tape, const HeadColumns& q, const HeadColumns& k, const HeadColumns& v,
                   const HeadShape& shape, Index kv_heads, const Attention& how,
                   const AttentionExtras& extras) {
  const HeadShape keys{shape.items, kv_heads, shape.dim};
  const View queries = view_of(q, shape);
  const RowsAndWidth rows{q.of.shape()[0], shape.heads * shape.dim};
  Tensor out = Tensor::uninitialized({rows.count, rows.width});
  LayerCall call{queries, view_of(k, keys), view_of(v, keys), heads_in(out.data(), rows, shape, 0),
                 how};
  return run(tape, std::move(out), {q, k, v, {std::move(call)}, extras.table}, extras);
}

Variable attention_varlen(Tape& tape, const HeadColumns& q, const HeadColumns& k,
                          const HeadColumns& v, const HeadShape& shape, Index kv_heads,
                          const std::vector<SequenceCall>& sequences,
                          const AttentionExtras& extras) {
  const auto keys_of = [](const SequenceCall& call) { return call.keys.value_or(call.tokens); };
  Index query_rows = 0, key_rows = 0;
  for (const SequenceCall& call : sequences) {
    query_rows += call.items * call.tokens;
    key_rows += call.items * keys_of(call);
  }
  check_apart("attention", q.of.value(), shape, query_rows);
  check_apart("attention", k.of.value(), {1, kv_heads, shape.dim}, key_rows);
  const View queries = view_of(q, shape), keys = view_of(k, {1, kv_heads, shape.dim}),
             values = view_of(v, {1, kv_heads, shape.dim});
  const RowsAndWidth rows{q.of.shape()[0], shape.heads * shape.dim};
  Tensor out = Tensor::uninitialized({rows.count, rows.width});
  const MutableView all = heads_in(out.data(), rows, shape, 0);
  Kept kept{q, k, v, {}, extras.table};
  Index query = 0, key = 0;
  for (const SequenceCall& call : sequences) {
    const Index count = keys_of(call), items = call.items;
    kept.calls.push_back({tokens_of(queries, query, call.tokens, items),
                          tokens_of(keys, key, count, items), tokens_of(values, key, count, items),
                          tokens_of(all, query, call.tokens, items), call.how});
    query += items * call.tokens;
    key += items * count;
  }
  return run(tape, std::move(out), std::move(kept), extras);
}

Variable rotate(Tape& tape, Variable x, const HeadShape& shape, const Rope& rope,
                const std::vector<Index>& positions, Index first) {
  const RowsAndWidth rows = rows_and_width("rotate", x.value(), shape);
  check(shape.heads * shape.dim <= rows.width, "rotate: ", shape.heads, " heads of ", shape.dim,
        " given, more than a row of ", rows.width);
  check(positions.empty() || static_cast<Index>(positions.size()) == rows.count,
        "rotate: ", positions.size(), " positions of ", rows.count, " rows");
  const GradientSlot slot = x.slot();
  Tensor rotated = Tape::release(std::move(x));
  const auto where = [=](const std::vector<Index>& list) {
    return list.empty() ? Positions(first) : Positions::list(list);
  };
  rope.apply(heads_in(rotated.data(), rows, shape, 0), where(positions), tape.context());
  if (!tape.records()) return tape.input(std::move(rotated));
  return tape.record(std::move(rotated), [=, context = tape.context()](Tensor gradient) {
    rope.apply_backward(heads_in(gradient.data(), rows, shape, 0), where(positions), context);
    slot.add(std::move(gradient));
  });
}

Variable rotate_varlen(Tape& tape, Variable x, const HeadShape& shape,
                       const std::vector<Index>& lengths, const std::vector<Rope>& ropes) {
  check_apart("rotate", x.value(), shape,
              std::accumulate(lengths.begin(), lengths.end(), Index{0}));
  check(ropes.size() == lengths.size(), "rotate: ", ropes.size(), " ropes for ", lengths.size(),
        " sequences, expected as many");
  const GradientSlot slot = x.slot();
  Tensor rotated = Tape::release(std::move(x));
  const auto each = [=, rows = rows_and_width("rotate", rotated, shape)](Tensor& all,
                                                                         const auto& rotate) {
    const MutableView heads = heads_in(all.data(), rows, shape, 0);
    Index first = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      rotate(ropes[i], tokens_of(heads, first, lengths[i]));
      first += lengths[i];
    }
  };
  each(rotated,
       [&](const Rope& rope, const MutableView& some) { rope.apply(some, {}, tape.context()); });
  if (!tape.records()) return tape.input(std::move(rotated));
  return tape.record(std::move(rotated), [=, context = tape.context()](Tensor gradient) {
    each(gradient, [&](const Rope& rope, const MutableView& some) {
      rope.apply_backward(some, {}, context);
    });
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
  return tape.record(std::move(apart), undo);
}

Variable reshaped(Tape& tape, Variable x, const Shape& shape) {
  const auto undo = [slot = x.slot(), before = x.shape()](Tensor gradient) {
    slot.add(std::move(gradient).reshaped(before));
  };
  return tape.record(Tape::release(std::move(x)).reshaped(shape), undo);
}

}  // namespace

Variable head_norm(Tape& tape, const HeadColumns& x, const HeadShape& shape, Parameter& gain,
                   double epsilon) {
  const Index rows = x.of.shape()[0];
  Variable normed = rms_norm(tape, heads_as_rows(tape, x, shape), gain, epsilon);
  return reshaped(tape, std::move(normed), {rows, shape.heads * shape.dim});
}

}  // namespace rapt
