#include "attention/lsh_attend.h"

#include <algorithm>
#include <cmath>

#include "attention/backward.h"
#include "attention/forward.h"
#include "attention/lsh_call.h"
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

/// One token's denominators, of each round and of all. A token that sees only itself has logits of
/// -1e5; down there Transformers' f32 denominators, rounded in each round and once more over the
/// rounds, are off by a few parts in a thousand, and so are its probabilities. Reproduced.
struct JointLse {
  double of_round[most_rounds];
  double all;

  JointLse(const Rows& rows, const std::int32_t* places, Index tokens, Index rounds, bool shared) {
    double most = minus_infinity;
    for (Index r = 0; r < rounds; ++r) {
      of_round[r] = lse_of(rows, places[r * tokens]);
      if (std::isnan(of_round[r])) most = of_round[r];
      if (of_round[r] > most) most = of_round[r];  // false if either is NaN
    }
    all = most;
    if (!std::isfinite(most)) return;
    const bool rounded = shared && SlotRule::alone(most);
    const auto as_kept = [&](double x) {
      return rounded ? static_cast<double>(static_cast<float>(x)) : x;
    };
    double sum = 0;
    for (Index r = 0; r < rounds; ++r) sum += std::exp(as_kept(of_round[r]) - as_kept(most));
    all = as_kept(as_kept(most) + std::log(sum));
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
    const double exponent = lsh_.shared_keys() ? SlotRule::in_log2(lse) : lse * log2_e;
    const double whole = std::isfinite(exponent) ? std::floor(exponent) : exponent;
    attended_.rows.max[static_cast<std::size_t>(at)] = static_cast<float>(whole);
    attended_.rows.sum[static_cast<std::size_t>(at)] =
        nothing ? 0 : std::exp2(exponent - static_cast<double>(static_cast<float>(whole)));
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

}  // namespace

Attended attend_lsh(const AnyMutableView* into, Tensor& made, AnyView q, AnyView k, AnyView v,
                    const Attention& how, const Context& context) {
  LshCall lsh("attend", q, k, v, how, context, nullptr);
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
  Buffer<float> slot_out(checked_product({lsh.slots(), lsh.value_dim()}));
  Tensor slot_lse({1, 1, lsh.slots()});
  Rows slot_rows;
  slot_rows.max.resize(static_cast<std::size_t>(lsh.slots()));
  slot_rows.sum.resize(static_cast<std::size_t>(lsh.slots()));
  for (Index owner = 0; owner < lsh.batch() * lsh.heads(); ++owner) {
    const Index item = owner / lsh.heads(), head = owner % lsh.heads();
    lsh.take(item, head);
    run_forward(lsh.call(), lsh.keys(),
                {writable(slot_out, lsh.value_dim()), &slot_lse, &slot_rows, nullptr});
    Join(lsh, slot_out, slot_rows, out, attended).run(item, head);
  }
  return attended;
}

Gradients attend_lsh_backward(AnyView dout, AnyView q, AnyView k, AnyView v, AnyView out,
                              const Rows& rows, const Attention& how, const Context& context) {
  LshCall lsh("attend_backward", q, k, v, how, context, rows.order);
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
  const Index value_numbers = checked_product({lsh.slots(), lsh.value_dim()});
  Buffer<float> slot_dout(value_numbers), slot_out(value_numbers);
  Gradients slots;
  slots.dq = Tensor::uninitialized({1, 1, lsh.slots(), lsh.dim()}, Type::f32);
  slots.dk = Tensor::uninitialized({1, 1, lsh.slots(), lsh.dim()}, Type::f32);
  slots.dv = Tensor::uninitialized({1, 1, lsh.slots(), lsh.value_dim()}, Type::f32);
  for (Index owner = 0; owner < lsh.batch() * lsh.heads(); ++owner) {
    const Index item = owner / lsh.heads(), head = owner % lsh.heads();
    lsh.take(item, head);
    lsh.take_keys();
    lsh.gather(dout, lsh.query_positions(), nullptr, slot_dout.data());
    lsh.gather(out, lsh.query_positions(), nullptr, slot_out.data());
    const Rows slot_rows = rows_in_slots(lsh, rows, owner);
    const BackwardInput input(lsh.call(), slot_view(slot_dout, lsh.value_dim()),
                              slot_view(slot_out, lsh.value_dim()), slot_rows);
    run_backward(lsh.call(), input, slots);
    join_gradients(lsh, lsh.query_positions(), slots.dq, gradients.dq, item, head, {});
    join_gradients(lsh, lsh.key_positions(), slots.dv, gradients.dv, item, head, {});
    join_gradients(lsh, lsh.key_positions(), slots.dk, gradients.dk, item, head,
                   [&](Index position, float* row) {
                     if (lsh.shared_keys()) through_norm(lsh, k, item, head, position, row);
                   });
  }
  return gradients;
}

}  // namespace rapt
