#include "head_report/head_similarity.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/indexed_vector.h"
#include "kernels/kernels.h"

namespace rapt::detail {
namespace {

/// Enough queries to compare heads by; more only take time.
constexpr Index most_queries = 1024;

/// What queries of twice as many channels are multiplied by to have the logits that they had.
double scale_change(const Scale& scale) {
  switch (scale.rule) {
    case Scale::Rule::value:
      return 1;
    case Scale::Rule::inverse_dim:
      return 2;
    default:
      return std::sqrt(2.0);
  }
}

/// Rows of a, then those of b, channel behind channel: [1, 1, rows, 2 dim].
Tensor side_by_side(const View& a, const View& b, Index rows, double factor) {
  const Index dim = a.dim(), first = a.tokens() - rows;
  Tensor made = Tensor::uninitialized({1, 1, rows, 2 * dim});
  float* to = made.data();
  for (Index i = first; i < a.tokens(); ++i)
    for (const View* from : {&a, &b})
      to = std::transform(from->row(0, 0, i), from->row(0, 0, i) + dim, to, [&](float x) {
        return static_cast<float>(factor * static_cast<double>(x));
      });
  return made;
}

class HeadSimilarity {
 public:
  HeadSimilarity(const AttentionCall& call, const Context& context)
      : call_(call),
        context_(context),
        queries_(std::min(call.q.tokens(), most_queries)),
        plan_(std::make_shared<const Plan>(call.how.pattern, Lengths{queries_, call.k.tokens()})),
        values_({1, 1, call.k.tokens(), 1}) {
    for (Index head = 0; head < call.q.heads(); ++head) {
      const OneHead one = head_of(call, head);
      const View last = View::unchecked(one.q.row(0, 0, one.q.tokens() - queries_),
                                        {1, 1, queries_, one.q.dim()}, one.q.strides());
      lse_.push_back(lse_of(last, one.k, one.how));
    }
  }

  /// Sum over queries and keys of p p'.
  double product(Index a, Index b) const {
    const OneHead one = head_of(call_, a), other = head_of(call_, b);
    const Tensor q = side_by_side(one.q, other.q, queries_, scale_change(call_.how.scale));
    const Tensor k = side_by_side(one.k, other.k, call_.k.tokens(), 1);
    Attention how = one.how;
    Tensor table;
    if (how.bias.alibi) how.bias.alibi->slopes[0] += other.how.bias.alibi->slopes[0];
    if (how.bias.table) {
      table = sum_of(how.bias.table->values, other.how.bias.table->values);
      how.bias.table->values = table.view();
    }
    const Tensor both = lse_of(q.view(), k.view(), how);
    double sum = 0;
    for (Index i = 0; i < queries_; ++i)
      if (std::isfinite(both.data()[i]))
        sum += std::exp(static_cast<double>(both.data()[i]) - lse(a, i) - lse(b, i));
    return sum;
  }

 private:
  double lse(Index head, Index i) const { return static_cast<double>(lse_[head].data()[i]); }
  static Tensor sum_of(const View& a, const View& b) {
    Tensor made({a.shape()[0], 1});
    for (Index i = 0; i < a.shape()[0]; ++i)
      made.data()[i] = a.data()[i * a.strides()[0]] + b.data()[i * b.strides()[0]];
    return made;
  }
  Tensor lse_of(const View& q, const View& k, Attention how) const {
    how.plan = plan_;
    return attend(q, k, values_.view(), how, context_).lse;
  }

  const AttentionCall& call_;
  const Context& context_;
  Index queries_;
  std::shared_ptr<const Plan> plan_;
  Tensor values_;  // the output is not used
  IndexedVector<Tensor> lse_;
};

}  // namespace

std::vector<double> similarities(const AttentionCall& call, const Context& context) {
  const Index heads = call.q.heads();
  IndexedVector<double> cosines(heads * heads, std::numeric_limits<double>::quiet_NaN());
  if (call.how.softcap > 0 || 2 * call.q.dim() > max_dim) return cosines;
  const HeadSimilarity similarity(call, context);
  const auto at = [&](Index a, Index b) -> double& { return cosines[a * heads + b]; };
  for (Index a = 0; a < heads; ++a) at(a, a) = similarity.product(a, a);
  for (Index a = 0; a < heads; ++a)
    for (Index b = a + 1; b < heads; ++b)
      at(a, b) = at(b, a) = similarity.product(a, b) / std::sqrt(at(a, a) * at(b, b));
  for (Index a = 0; a < heads; ++a) at(a, a) = 1;
  return cosines;
}

}  // namespace rapt::detail
