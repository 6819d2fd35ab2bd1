#include "attention/lsh_attend.h"

#include <algorithm>
#include <cmath>

#include "attention/backward.h"
#include "attention/forward.h"
#include "attention/lsh_call.h"
#include "attention/lsh_join.h"
#include "base/check.h"

namespace rapt {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

AnyMutableView writable(Buffer<float>& numbers, Index width) {
  return AnyMutableView::trusted(numbers.data(), Type::f32, {1, 1, numbers.size() / width, width},
                                 {numbers.size(), numbers.size(), width, 1});
}

/// The slots of each position, round after round.
Buffer<std::int32_t> places_of(const LshOrder& order, const std::int32_t* positions) {
  Buffer<std::int32_t> places(order.rounds() * order.tokens());
  for (Index s = 0; s < order.slots(); ++s) {
    if (positions[s] >= 0)
      places[s / order.slots_per_round() * order.tokens() + positions[s]] =
          static_cast<std::int32_t>(s);
  }
  return places;
}

/// The natural logarithm of a slot's denominator.
double lse_of(const Rows& rows, Index slot) {
  const auto at = static_cast<std::size_t>(slot);
  return SlotRule::natural(rows.max[at]) + std::log(rows.sum[at]);
}

constexpr Index most_rounds = 1024;

/// One token's denominators, of each round and of all.
struct JointLse {
  double of_round[most_rounds];
  double all;

  JointLse(const Rows& rows, const std::int32_t* places, Index tokens, Index rounds, bool shared) {
    for (Index r = 0; r < rounds; ++r) of_round[r] = lse_of(rows, places[r * tokens]);
    all = joint_lse(of_round, rounds, shared);
  }
};

/// Joins the rounds of one head.
class Join {
 public:
  Join(const LshCall& lsh, const Buffer<float>& slot_out, const Rows& slot_rows, AnyMutableView out,
       Attended& attended)
      : lsh_(lsh),
        slot_out_(slot_out),
        slot_rows_(slot_rows),
        out_(out),
        attended_(attended),
        places_(places_of(lsh.order(), lsh.query_positions())) {}

  void run(Index item, Index head) {
    for_each_task(lsh_.context(), divide_up(lsh_.tokens(), tile), [&](Index task, Index) {
      for (Index i = task * tile; i < std::min(lsh_.tokens(), (task + 1) * tile); ++i)
        join(item, head, i);
    });
  }

 private:
  void prefetch(Index position) const {
    const Index bytes = lsh_.value_dim() * Index{sizeof(float)};
    for (Index r = 0; r < lsh_.order().rounds() && position < lsh_.tokens(); ++r) {
      const Index slot = places_[r * lsh_.tokens() + position];
      prefetch_row(slot_out_.data() + slot * lsh_.value_dim(), bytes);
      __builtin_prefetch(slot_rows_.max.data() + slot);
      __builtin_prefetch(slot_rows_.sum.data() + slot);
    }
  }

  void join(Index item, Index head, Index position) {
    const Index tokens = lsh_.tokens(), rounds = lsh_.order().rounds(), numbers = lsh_.value_dim();
    prefetch(position + rows_ahead / 2);
    const JointLse joint(slot_rows_, places_.data() + position, tokens, rounds, lsh_.shared_keys());
    const double lse = joint.all;
    float sums[max_dim];
    // A denominator of -inf is a token that sees nothing; NaN and +inf make the row NaN.
    const bool nothing = lse == minus_infinity;
    std::fill(sums, sums + numbers,
              nothing || std::isfinite(lse) ? 0.0f : std::numeric_limits<float>::quiet_NaN());
    for (Index r = 0; r < rounds && std::isfinite(lse); ++r) {
      const auto weight = static_cast<float>(std::exp(joint.of_round[r] - lse));
      const float* from = slot_out_.data() + places_[r * tokens + position] * numbers;
      for (Index c = 0; c < numbers; ++c) sums[c] += weight * from[c];
    }
    lsh_.kernels().store_numbers(sums, numbers, out_.type(), out_.row(item, head, position));
    const Index at = (item * lsh_.heads() + head) * tokens + position;
    attended_.lse.data()[at] = static_cast<float>(lse);
    const RowStatistics statistics = row_statistics(lse, lsh_.shared_keys());
    attended_.rows.max[static_cast<std::size_t>(at)] = statistics.max;
    attended_.rows.sum[static_cast<std::size_t>(at)] = statistics.sum;
  }

  const LshCall& lsh_;
  const Buffer<float>& slot_out_;
  const Rows& slot_rows_;
  AnyMutableView out_;
  Attended& attended_;
  Buffer<std::int32_t> places_;
};

/// What forward left of each token, repeated for its slots.
Rows rows_in_slots(const LshCall& lsh, const Rows& rows, Index owner) {
  Rows slots;
  slots.max.resize(static_cast<std::size_t>(lsh.slots()));
  slots.sum.resize(static_cast<std::size_t>(lsh.slots()));
  for (Index s = 0; s < lsh.slots(); ++s) {
    const std::int32_t position = lsh.query_positions()[s];
    const auto to = static_cast<std::size_t>(s);
    const auto from = static_cast<std::size_t>(owner * lsh.tokens() + position);
    slots.max[to] = position < 0 ? -std::numeric_limits<float>::infinity() : rows.max[from];
    slots.sum[to] = position < 0 ? 0 : rows.sum[from];
  }
  return slots;
}

/// Adds up the rounds of a gradient.
void join_gradients(const LshCall& lsh, const std::int32_t* positions, const Tensor& slots,
                    const AnyMutableView& out, Index item, Index head,
                    const std::function<void(Index position, float* row)>& finish) {
  const Buffer<std::int32_t> places = places_of(lsh.order(), positions);
  const Index tokens = lsh.tokens(), rounds = lsh.order().rounds(), numbers = out.dim();
  const auto row_of = [&](Index round, Index position) {
    return slots.data() + places[round * tokens + position] * numbers;
  };
  for_each_task(lsh.context(), divide_up(tokens, tile), [&](Index task, Index) {
    for (Index i = task * tile; i < std::min(tokens, (task + 1) * tile); ++i) {
      float sums[max_dim] = {};
      for (Index r = 0; r < rounds; ++r) {
        if (i + rows_ahead / 2 < tokens)
          prefetch_row(row_of(r, i + rows_ahead / 2), numbers * Index{sizeof(float)});
        const float* from = row_of(r, i);
        for (Index c = 0; c < numbers; ++c) sums[c] += from[c];
      }
      if (finish) finish(i, sums);
      lsh.kernels().store_numbers(sums, numbers, out.type(), out.row(item, head, i));
    }
  });
}

/// From the gradient of x * f, f the inverse root mean square of x, to that of x.
void through_norm(const LshCall& lsh, const AnyView& k, Index item, Index head, Index position,
                  float* row) {
  float x[max_dim];
  const Index dim = lsh.dim();
  lsh.kernels().load_numbers(k.row(item, head, position), k.type(), dim, x);
  const double factor = lsh.key_factor(position);
  double along = 0;
  for (Index c = 0; c < dim; ++c) along += static_cast<double>(row[c]) * static_cast<double>(x[c]);
  along *= factor * factor / static_cast<double>(dim);
  for (Index c = 0; c < dim; ++c) {
    const double rest = static_cast<double>(row[c]) - along * static_cast<double>(x[c]);
    row[c] = static_cast<float>(factor * rest);
  }
}

/// Whoever computes one head after the other.
class ForwardHeads {
 public:
  ForwardHeads(const Context& context, const AnyView& q, const AnyView& k, const AnyView& v,
               const Attention& how, const std::shared_ptr<const LshOrder>& order,
               const AnyMutableView& out, Attended& attended)
      : lsh_("attend", q, k, v, how, context, order),
        out_(out),
        attended_(attended),
        slot_out_(checked_product({lsh_.slots(), lsh_.value_dim()})),
        slot_lse_({1, 1, lsh_.slots()}) {
    slot_rows_.max.resize(static_cast<std::size_t>(lsh_.slots()));
    slot_rows_.sum.resize(static_cast<std::size_t>(lsh_.slots()));
  }

  void run(Index owner) {
    const Index item = owner / lsh_.heads(), head = owner % lsh_.heads();
    lsh_.take(item, head);
    run_forward(lsh_.call(), lsh_.keys(),
                {writable(slot_out_, lsh_.value_dim()), &slot_lse_, &slot_rows_, nullptr});
    Join(lsh_, slot_out_, slot_rows_, out_, attended_).run(item, head);
  }

 private:
  LshCall lsh_;
  AnyMutableView out_;
  Attended& attended_;
  Buffer<float> slot_out_;
  Tensor slot_lse_;
  Rows slot_rows_;
};

class BackwardHeads {
 public:
  BackwardHeads(const Context& context, const AnyView& dout, const AnyView& q, const AnyView& k,
                const AnyView& v, const AnyView& out, const Rows& rows, const Attention& how,
                const std::shared_ptr<const LshOrder>& order, Gradients& gradients)
      : lsh_("attend_backward", q, k, v, how, context, order),
        dout_(dout),
        k_(k),
        out_(out),
        rows_(rows),
        gradients_(gradients),
        slot_dout_(checked_product({lsh_.slots(), lsh_.value_dim()})),
        slot_out_(slot_dout_.size()) {
    slots_.dq = Tensor::uninitialized({1, 1, lsh_.slots(), lsh_.dim()});
    slots_.dk = Tensor::uninitialized({1, 1, lsh_.slots(), lsh_.dim()});
    slots_.dv = Tensor::uninitialized({1, 1, lsh_.slots(), lsh_.value_dim()});
  }

  void run(Index owner) {
    const Index item = owner / lsh_.heads(), head = owner % lsh_.heads();
    lsh_.take(item, head);
    lsh_.take_keys();
    lsh_.gather(dout_, lsh_.query_positions(), nullptr, slot_dout_.data());
    lsh_.gather(out_, lsh_.query_positions(), nullptr, slot_out_.data());
    const Rows slot_rows = rows_in_slots(lsh_, rows_, owner);
    const BackwardInput input(lsh_.call(), slot_view(slot_dout_, lsh_.value_dim()),
                              slot_view(slot_out_, lsh_.value_dim()), slot_rows);
    run_backward(lsh_.call(), input, slots_);
    join_gradients(lsh_, lsh_.query_positions(), slots_.dq, gradients_.dq, item, head, {});
    join_gradients(lsh_, lsh_.key_positions(), slots_.dv, gradients_.dv, item, head, {});
    join_gradients(lsh_, lsh_.key_positions(), slots_.dk, gradients_.dk, item, head,
                   [&](Index position, float* row) {
                     if (lsh_.shared_keys()) through_norm(lsh_, k_, item, head, position, row);
                   });
  }

 private:
  LshCall lsh_;
  AnyView dout_, k_, out_;
  const Rows& rows_;
  Gradients& gradients_;
  Buffer<float> slot_dout_, slot_out_;
  Gradients slots_;
};

/// Every head, each by one thread if there are enough of them: the tasks of one head's backward
/// wait for each other. Otherwise the threads share each head.
template <class Heads, class... Arguments>
void for_each_head(const Context& context, Index owners, Arguments&... arguments) {
  const bool apart = context.threads() > 1 && owners >= context.threads();
  const Context inside = apart ? Context(1, context.isa()) : context;
  Crew<Heads> crew(context);
  const auto run = [&](Index owner, Index worker) {
    crew.get(worker, inside, arguments...).run(owner);
  };
  if (apart) return for_each_task(context, owners, run);
  for (Index owner = 0; owner < owners; ++owner) run(owner, 0);
}

}  // namespace

Attended attend_lsh(const AnyMutableView* into, Tensor& made, AnyView q, AnyView k, AnyView v,
                    const Attention& how, const Context& context,
                    std::shared_ptr<const LshOrder> order) {
  const LshCall lsh("attend", q, k, v, how, context, order ? std::move(order) : how.order);
  const Shape shape{lsh.batch(), lsh.heads(), lsh.tokens(), lsh.value_dim()};
  if (into == nullptr) {
    made = Tensor::uninitialized(shape, q.type());
  } else {
    check_output("attend", "out", *into, shape);
    check_apart("attend", *into, q, "q");
    check_apart("attend", *into, k, "k");
    check_apart("attend", *into, v, "v");
  }
  const AnyMutableView out = into == nullptr ? AnyMutableView(made) : *into;
  Attended attended;
  attended.lse = Tensor({lsh.batch(), lsh.heads(), lsh.tokens()});
  attended.rows.max.resize(static_cast<std::size_t>(attended.lse.elements()));
  attended.rows.sum.resize(static_cast<std::size_t>(attended.lse.elements()));
  attended.rows.order = lsh.shared_order();
  for_each_head<ForwardHeads>(context, lsh.batch() * lsh.heads(), q, k, v, how, lsh.shared_order(),
                              out, attended);
  return attended;
}

Gradients attend_lsh_backward(AnyView dout, AnyView q, AnyView k, AnyView v, AnyView out,
                              const Rows& rows, const Attention& how, const Context& context) {
  const LshCall lsh("attend_backward", q, k, v, how, context, rows.order ? rows.order : how.order);
  const Shape shape{lsh.batch(), lsh.heads(), lsh.tokens(), lsh.value_dim()};
  check_operand("attend_backward", "dout", dout, shape);
  check_operand("attend_backward", "out", out, shape);
  const auto count = static_cast<std::size_t>(lsh.batch() * lsh.heads() * lsh.tokens());
  check(rows.max.size() == count && rows.sum.size() == count, "attend_backward: rows have ",
        rows.max.size(), " max and ", rows.sum.size(), " sum, expected ", count, " of each");
  Gradients gradients;
  gradients.dq = Tensor(q.shape(), q.type());
  gradients.dk = Tensor(k.shape(), k.type());
  gradients.dv = Tensor(v.shape(), v.type());
  for_each_head<BackwardHeads>(context, lsh.batch() * lsh.heads(), dout, q, k, v, out, rows, how,
                               lsh.shared_order(), gradients);
  return gradients;
}

}  // namespace rapt
