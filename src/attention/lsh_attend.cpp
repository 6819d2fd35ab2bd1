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

/// The natural logarithm of a denominator.
double lse_of(const Rows& rows, Index row) {
  const auto at = static_cast<std::size_t>(row);
  return SlotRule::natural(rows.max[at]) + std::log(rows.sum[at]);
}

constexpr Index most_rounds = 1024;

/// One token's denominators, of each round and of all.
struct JointLse {
  double of_round[most_rounds];
  double all;

  JointLse(const Rows& rows, Index position, Index tokens, Index rounds, bool rounded) {
    for (Index r = 0; r < rounds; ++r) of_round[r] = lse_of(rows, r * tokens + position);
    all = joint_lse(of_round, rounds, rounded);
  }
};

/// Joins the rounds of one head, whose results lie round after round, by position.
class Join {
 public:
  Join(const LshCall& lsh, const Buffer<float>& round_out, const Rows& round_rows,
       AnyMutableView out, Attended& attended)
      : lsh_(lsh), round_out_(round_out), round_rows_(round_rows), out_(out), attended_(attended) {}

  void run(Index item, Index head) {
    for_each_task(lsh_.context(), divide_up(lsh_.tokens(), tile), [&](Index task, Index) {
      for (Index i = task * tile; i < std::min(lsh_.tokens(), (task + 1) * tile); ++i)
        join(item, head, i);
    });
  }

 private:
  void join(Index item, Index head, Index position) {
    const Index tokens = lsh_.tokens(), rounds = lsh_.order().rounds(), numbers = lsh_.value_dim();
    const JointLse joint(round_rows_, position, tokens, rounds, lsh_.rounds_denominators());
    const double lse = joint.all;
    float sums[max_dim];
    // A denominator of -inf is a token that sees nothing; NaN and +inf make the row NaN.
    const bool nothing = lse == minus_infinity;
    std::fill(sums, sums + numbers,
              nothing || std::isfinite(lse) ? 0.0f : std::numeric_limits<float>::quiet_NaN());
    for (Index r = 0; r < rounds && std::isfinite(lse); ++r) {
      const auto weight = static_cast<float>(std::exp(joint.of_round[r] - lse));
      const float* from = round_out_.data() + (r * tokens + position) * numbers;
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
  const Buffer<float>& round_out_;
  const Rows& round_rows_;
  AnyMutableView out_;
  Attended& attended_;
};

/// Adds up the rounds of a gradient.
void join_gradients(const LshCall& lsh, const Tensor& rounds, const AnyMutableView& out, Index item,
                    Index head, const std::function<void(Index position, float* row)>& finish) {
  const Index tokens = lsh.tokens(), numbers = out.dim();
  for_each_task(lsh.context(), divide_up(tokens, tile), [&](Index task, Index) {
    for (Index i = task * tile; i < std::min(tokens, (task + 1) * tile); ++i) {
      float sums[max_dim] = {};
      for (Index r = 0; r < lsh.order().rounds(); ++r) {
        const float* from = rounds.data() + (r * tokens + i) * numbers;
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
  ForwardHeads(const Context& context, const LshCall& lsh, const AnyMutableView& out,
               Attended& attended)
      : lsh_(lsh, context),
        out_(out),
        attended_(attended),
        round_out_(checked_product({lsh_.slots(), lsh_.value_dim()})),
        round_lse_({1, 1, lsh_.slots()}) {
    round_rows_.max.resize(static_cast<std::size_t>(lsh_.slots()));
    round_rows_.sum.resize(static_cast<std::size_t>(lsh_.slots()));
  }

  void run(Index owner) {
    const Index item = owner / lsh_.heads(), head = owner % lsh_.heads();
    lsh_.take(item, head);
    run_forward(lsh_.call(), lsh_.keys(),
                {writable(round_out_, lsh_.value_dim()), &round_lse_, &round_rows_, nullptr});
    Join(lsh_, round_out_, round_rows_, out_, attended_).run(item, head);
  }

 private:
  LshCall lsh_;
  AnyMutableView out_;
  Attended& attended_;
  Buffer<float> round_out_;
  Tensor round_lse_;
  Rows round_rows_;
};

class BackwardHeads {
 public:
  BackwardHeads(const Context& context, const LshCall& lsh, const AnyView& dout, const AnyView& k,
                const AnyView& out, const Rows& rows, const GradientViews& gradients)
      : lsh_(lsh, context), dout_(dout), k_(k), out_(out), rows_(rows), gradients_(gradients) {
    const auto rounds = [&](Index numbers) {
      return Tensor::uninitialized({1, 1, lsh_.slots(), numbers});
    };
    rounds_.dq = rounds(lsh_.dim());
    rounds_.dk = rounds(lsh_.dim());
    rounds_.dv = rounds(lsh_.value_dim());
  }

  void run(Index owner) {
    const Index item = owner / lsh_.heads(), head = owner % lsh_.heads();
    lsh_.take(item, head);
    const BackwardInput input(lsh_.call(), lsh_.head_of(dout_), lsh_.head_of(out_), rows_,
                              owner * lsh_.tokens());
    run_backward(lsh_.call(), input, {rounds_.dq, rounds_.dk, rounds_.dv}, rounds_);
    join_gradients(lsh_, rounds_.dq, gradients_.dq, item, head, {});
    join_gradients(lsh_, rounds_.dv, gradients_.dv, item, head, {});
    join_gradients(lsh_, rounds_.dk, gradients_.dk, item, head, [&](Index position, float* row) {
      if (lsh_.shared_keys()) through_norm(lsh_, k_, item, head, position, row);
    });
  }

 private:
  LshCall lsh_;
  AnyView dout_, k_, out_;
  const Rows& rows_;
  GradientViews gradients_;
  Gradients rounds_;
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
                    const Attention& how, const Context& context) {
  const LshCall lsh("attend", q, k, v, how, context, how.order);
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
  for_each_head<ForwardHeads>(context, lsh.batch() * lsh.heads(), lsh, out, attended);
  return attended;
}

void attend_lsh_backward(const GradientViews& to, AnyView dout, AnyView q, AnyView k, AnyView v,
                         AnyView out, const Rows& rows, const Attention& how,
                         const Context& context) {
  const LshCall lsh("attend_backward", q, k, v, how, context, rows.order ? rows.order : how.order);
  const Shape shape{lsh.batch(), lsh.heads(), lsh.tokens(), lsh.value_dim()};
  check_operand("attend_backward", "dout", dout, shape);
  check_operand("attend_backward", "out", out, shape);
  const auto count = static_cast<std::size_t>(lsh.batch() * lsh.heads() * lsh.tokens());
  check(rows.max.size() == count && rows.sum.size() == count, "attend_backward: rows have ",
        rows.max.size(), " max and ", rows.sum.size(), " sum, expected ", count, " of each");
  for_each_head<BackwardHeads>(context, lsh.batch() * lsh.heads(), lsh, dout, k, out, rows, to);
}

}  // namespace rapt
