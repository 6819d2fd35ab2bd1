#include "attention/lsh/lsh_attend.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "attention/backward/backward.h"
#include "attention/forward/forward.h"
#include "attention/forward/unrounded_out.h"
#include "attention/lsh/lsh_call.h"
#include "attention/lsh/lsh_decode.h"
#include "attention/lsh/round_sums.h"
#include "attention/lsh/row_statistics.h"
#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/views.h"

namespace rapt::detail {
namespace {

/// Every token, a tile of them at a time.
template <class Run>
void for_each_token(const LshCall& lsh, const Run& run) {
  for_each_task(lsh.context(), divide_up(lsh.tokens(), tile), [&](Index task, Index) {
    for (Index i = task * tile; i < std::min(lsh.tokens(), (task + 1) * tile); ++i) run(i);
  });
}

/// From the gradient of x * f, f the inverse root mean square of x, to that of x.
void through_norm(const LshCall& lsh, const AnyView& k, Index position, float* row) {
  float x[max_dim];
  const Index dim = lsh.dim();
  lsh.kernels().vectors.load(k.row(lsh.item(), lsh.head(), position), k.type(), dim, x);
  const double factor = lsh.key_factor(position);
  double along = 0;
  for (Index c = 0; c < dim; ++c) along += static_cast<double>(row[c]) * static_cast<double>(x[c]);
  along *= factor * factor / static_cast<double>(dim);
  for (Index c = 0; c < dim; ++c) {
    const double rest = static_cast<double>(row[c]) - along * static_cast<double>(x[c]);
    row[c] = static_cast<float>(factor * rest);
  }
}

/// Computes one head after the other.
class ForwardHeads {
 public:
  ForwardHeads(const Context& context, const LshCall& lsh, const ForwardOutput& output)
      : lsh_(lsh, context), output_(output), rounds_(lsh_, output.out) {}

  void run(Index batch_head) {
    lsh_.load_head(batch_head / lsh_.heads(), batch_head % lsh_.heads());
    rounds_.begin(lsh_.item(), lsh_.head());
    run_forward<float>(lsh_.call(), lsh_.keys(),
                       {.out = output_.out,
                        .lse = nullptr,
                        .rows = nullptr,
                        .stats = nullptr,
                        .rounds = &rounds_});
    for_each_token(lsh_, [&](Index token) { finish(token); });
  }

 private:
  void finish(Index token) {
    const double lse = rounds_.finish(token, output_.out);
    if (output_.rows == nullptr) return;
    const Index at =
        output_.first_row + (lsh_.item() * lsh_.heads() + lsh_.head()) * lsh_.tokens() + token;
    output_.lse->data()[at] = static_cast<float>(lse);
    const RowStatistics statistics = row_statistics(lse, lsh_.shared_keys());
    element(output_.rows->max, at) = statistics.max;
    element(output_.rows->sum, at) = statistics.sum;
  }

  LshCall lsh_;
  const ForwardOutput& output_;
  RoundSums rounds_;
};

/// A gradient of one head after the other, added up over the rounds: where it belongs if that is
/// f32 in contiguous rows, in scratch otherwise.
class GradientSums {
 public:
  GradientSums(const LshCall& lsh, const AnyMutableView& out)
      : lsh_(lsh),
        out_(out),
        scratch_(adds_in_place(out) ? 0 : checked_product({lsh.tokens(), out.dim()})) {}

  /// The head that lsh has loaded.
  AnyMutableView head() {
    const Shape shape{1, 1, lsh_.tokens(), out_.dim()};
    if (scratch_.size() == 0)
      return AnyMutableView::unchecked(out_.row(lsh_.item(), lsh_.head(), 0), Type::f32, shape,
                                       out_.strides());
    return AnyMutableView::unchecked(scratch_.data(), Type::f32, shape,
                                     {scratch_.size(), scratch_.size(), out_.dim(), 1});
  }
  void clear() {
    for_each_token(lsh_, [&](Index token) {
      std::fill_n(static_cast<float*>(head().row(0, 0, token)), out_.dim(), 0.0f);
    });
  }
  /// Lets change(token, row) have each row before it is written; null changes nothing.
  void finish(const std::function<void(Index token, float* row)>& change) {
    if (!change && scratch_.size() == 0) return;
    for_each_token(lsh_, [&](Index token) {
      auto* row = static_cast<float*>(head().row(0, 0, token));
      if (change) change(token, row);
      if (scratch_.size() > 0)
        lsh_.kernels().vectors.store(row, out_.dim(), out_.type(),
                                     out_.row(lsh_.item(), lsh_.head(), token));
    });
  }

 private:
  const LshCall& lsh_;
  AnyMutableView out_;
  Buffer<float> scratch_;
};

class BackwardHeads {
 public:
  BackwardHeads(const Context& context, const LshCall& lsh, const AnyView& dout, const AnyView& k,
                const AnyView& out, const Rows& rows, const GradientViews& gradients)
      : lsh_(lsh, context),
        dout_(dout),
        k_(k),
        out_(out),
        rows_(rows),
        dq_(lsh_, gradients.dq),
        dk_(lsh_, gradients.dk),
        dv_(lsh_, gradients.dv) {}

  void run(Index batch_head) {
    lsh_.load_head(batch_head / lsh_.heads(), batch_head % lsh_.heads());
    const BackwardInput input(lsh_.call(), lsh_.contiguous_rows(dout_, dout_scratch_),
                              lsh_.head_of(out_), rows_, batch_head * lsh_.tokens());
    dq_.clear();
    Gradients none;
    run_backward_tiles<float>(lsh_.call(), input, {dq_.head(), dk_.head(), dv_.head()}, none);
    dq_.finish({});
    dv_.finish({});
    if (!lsh_.shared_keys()) return dk_.finish({});
    dk_.finish([&](Index token, float* row) { through_norm(lsh_, k_, token, row); });
  }

 private:
  LshCall lsh_;
  AnyView dout_, k_, out_;
  Buffer<float> dout_scratch_;
  const Rows& rows_;
  GradientSums dq_, dk_, dv_;
};

/// Threads take heads of their own if there are enough of them, and share each head otherwise: the
/// tasks of one head wait for each other.
template <class Worker, class... Arguments>
void for_each_head(const LshCall& lsh, const Arguments&... arguments) {
  const Context& context = lsh.context();
  const Index batch_heads = lsh.batch() * lsh.heads();
  const bool apart = context.threads() > 1 && batch_heads >= context.threads();
  const Context inside = apart ? Context(1, context.isa()) : context;
  Workers<Worker> workers(context);
  const auto run = [&](Index batch_head, Index worker) {
    workers.get(worker, inside, lsh, arguments...).run(batch_head);
  };
  if (apart) return for_each_task(context, batch_heads, run);
  for (Index batch_head = 0; batch_head < batch_heads; ++batch_head) run(batch_head, 0);
}

}  // namespace

void run_lsh(const Request& request, const ForwardOutput& output) {
  const LshCall lsh(request, request.how.order);
  for_each_head<ForwardHeads>(lsh, output);
  if (output.rows != nullptr) output.rows->order = lsh.shared_order();
}

void run_lsh(std::span<const Job> jobs) {
  for (const Job& job : jobs) {
    if (job.request.cached) {
      run_lsh_prompt(job);
    } else {
      run_lsh(job.request, job.output);
    }
  }
}

std::string describe_lsh(const Request& request) {
  const Lsh lsh = *split_lsh(request.how.pattern).lsh;
  const Index tokens = request.queries();
  std::vector<Index> buckets = lsh.buckets;
  if (buckets.empty()) buckets = lsh_buckets(std::max<Index>(tokens, 1), lsh.chunk);
  std::ostringstream text;
  text << "kernel    fused f32, exact online softmax, f64 row sums and accumulators\n";
  if (tokens <= lsh.chunk) {
    text << "order     as it is: no more tokens than one chunk of " << lsh.chunk << "\n";
  } else {
    text << "order     by " << lsh.rounds << " round" << (lsh.rounds == 1 ? "" : "s")
         << " of hashing into " << list_text(buckets) << " buckets, chunks of " << lsh.chunk
         << " that see " << lsh.before << " before and " << lsh.after << " after them\n";
  }
  text << "pairs     " << lsh_pairs(lsh, tokens) << " of " << tokens * tokens << " for each of "
       << request.q.batch() * request.q.heads() << " heads, one head after the other\n";
  return text.str();
}

void run_lsh_backward(const GradientViews& to, AnyView dout, const Request& request, AnyView out,
                      const Rows& rows) {
  const LshCall lsh(request, rows.order ? rows.order : request.how.order);
  const Shape shape{lsh.batch(), lsh.heads(), lsh.tokens(), lsh.value_dim()};
  check_operand(request.where, "dout", dout, shape);
  check_operand(request.where, "out", out, shape);
  const Index count = lsh.batch() * lsh.heads() * lsh.tokens();
  check(std::ssize(rows.max) == count && std::ssize(rows.sum) == count, request.where,
        ": rows have ", rows.max.size(), " max and ", rows.sum.size(), " sum, expected ", count,
        " of each");
  const AnyView exact_out = unrounded(request.where, {out, rows});
  for_each_head<BackwardHeads>(lsh, dout, request.k, exact_out, rows, to);
}

}  // namespace rapt::detail

namespace rapt {

Attended attend_lsh(AnyView qk, AnyView v, const Lsh& options, const Attention& how,
                    const Context& context) {
  detail::check(options.keys == Lsh::Keys::shared,
                "attend_lsh: keys of lsh are separate, expected shared: queries are the keys");
  Attention hashed = how;
  hashed.pattern = how.pattern == full() ? lsh(options) : how.pattern & lsh(options);
  return attend(qk, qk, v, hashed, context);
}

}  // namespace rapt
