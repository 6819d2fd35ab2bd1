#include "rapt/lsh_recall.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/call.h"
#include "attention/lsh/lsh_order.h"
#include "attention/lsh/lsh_rotations.h"
#include "attention/pattern/pattern_node.h"
#include "attention/validate.h"
#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt {
using namespace detail;
namespace {

constexpr const char* where = "lsh_recall";

/// NaN ranks last.
float rank_of(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

struct Task {
  AnyView q, k;
  Lsh lsh;
  Pattern rest;
  double factor;  // of products, in natural logarithms
  double softcap;
  LshRecallOptions options;
  const LshOrder& order;
  const Kernels& kernels;
};

/// One head, one query after the other.
class RecallHead {
 public:
  RecallHead(const Task& task, Index batch_head)
      : t_(task),
        item_(batch_head / task.q.heads()),
        head_(batch_head % task.q.heads()),
        batch_head_(batch_head),
        tokens_(task.q.tokens()),
        dim_(task.q.dim()),
        keys_(checked_product({tokens_, dim_})),
        rows_(tokens_),
        met_(tokens_, -1),
        logits_(tokens_) {
    load_keys();
    find_sorted();
  }

  LshRecall run() {
    LshRecall sums;
    const Index count = std::min(tokens_, t_.options.queries.value_or(tokens_));
    for (Index i = 0; i < count; ++i) measure(i * tokens_ / count, sums);
    return sums;
  }

 private:
  bool shared() const { return t_.lsh.keys == Lsh::Keys::shared; }

  void load_keys() {
    for (Index j = 0; j < tokens_; ++j) {
      float* row = keys_.data() + j * dim_;
      t_.kernels.vectors.load(t_.k.row(item_, head_, j), t_.k.type(), dim_, row);
      const auto factor = static_cast<float>(shared() ? inverse_rms(row, dim_) : 1);
      for (Index c = 0; c < dim_; ++c) row[c] *= factor;
      rows_[j] = row;
    }
  }

  /// Where each token is sorted as a query, round after round.
  void find_sorted() {
    sorted_count_.resize(t_.order.rounds() * tokens_);
    const std::int32_t* positions = t_.order.queries(batch_head_);
    for (Index s = 0; s < t_.order.sorted_count(); ++s)
      if (positions[s] >= 0)
        sorted_count_[s / t_.order.sorted_per_round() * tokens_ + positions[s]] = s;
  }

  /// Marks the keys that a query meets in any round.
  void meet(Index query) {
    const std::int32_t* keys = t_.order.keys(batch_head_);
    if (!t_.order.sorted()) {
      std::fill(met_.begin(), met_.end(), query);
      return;
    }
    const Index chunk = t_.lsh.chunk, chunks = t_.order.sorted_count() / chunk;
    const Index steps = std::min(chunks, t_.lsh.before + t_.lsh.after + 1);
    for (Index round = 0; round < t_.order.rounds(); ++round) {
      const Index here = sorted_count_[round * tokens_ + query] / chunk;
      for (Index step = 0; step < steps; ++step) {
        const Index first = ((here - t_.lsh.before + step) % chunks + chunks) % chunks * chunk;
        for (Index s = first; s < first + chunk; ++s)
          if (keys[s] >= 0) met_[keys[s]] = query;
      }
    }
  }

  void score(Index query) {
    float row[max_dim];
    t_.kernels.vectors.load(t_.q.row(item_, head_, query), t_.q.type(), dim_, row);
    t_.kernels.decode.scattered[CacheType::f32].scores(row, rows_.data(), tokens_, dim_,
                                                       logits_.data());
    for (float& z : logits_) {
      double logit = static_cast<double>(z) * t_.factor;
      if (t_.softcap > 0) logit = t_.softcap * std::tanh(logit / t_.softcap);
      z = static_cast<float>(logit);
    }
  }

  void measure(Index query, LshRecall& sums) {
    seen_.clear();
    t_.rest.keys_of(query, {tokens_, tokens_}, ranges_);
    for (const Range& range : ranges_)
      for (Index j = range.begin; j < range.end; ++j)
        if (j != query || !shared()) seen_.push_back(j);
    if (seen_.empty()) return;
    meet(query);
    score(query);
    const Index top = std::min(t_.options.top, std::ssize(seen_));
    std::partial_sort(seen_.begin(), seen_.begin() + top, seen_.end(), [&](Index a, Index b) {
      const float x = rank_of(logits_[a]), y = rank_of(logits_[b]);
      return x > y || (x == y && a < b);
    });
    const auto most = static_cast<double>(logits_[seen_[0]]);
    double all = 0, found = 0, keys = 0, near = 0;
    for (Index i = 0; i < std::ssize(seen_); ++i) {
      const bool here = met_[seen_[i]] == query;
      const double p = std::exp(static_cast<double>(logits_[seen_[i]]) - most);
      all += p;
      found += here ? p : 0;
      keys += here;
      near += here && i < top;
    }
    sums.top += near / static_cast<double>(top);
    sums.mass += found / all;
    sums.keys += keys / static_cast<double>(seen_.size());
    ++sums.queries;
  }

  const Task& t_;
  Index item_, head_, batch_head_, tokens_, dim_;
  Buffer<float> keys_;
  IndexedVector<const void*> rows_;
  IndexedVector<Index> sorted_count_, met_, seen_;  // met: the query that met the key last
  IndexedVector<float> logits_;
  Ranges ranges_;
};

}  // namespace

LshRecall lsh_recall(AnyView q, AnyView k, const Attention& how, const LshRecallOptions& options,
                     const Context& context) {
  const SplitPattern split = split_lsh(how.pattern);
  check(split.lsh.has_value(), where, ": the pattern is ", to_string(how.pattern),
        ", expected one with an lsh leaf");
  check(options.top >= 1, where, ": top is ", options.top, ", expected 1 or more");
  check(options.queries.value_or(1) > 0, where, ": queries is ", options.queries.value_or(1),
        ", expected 1 or more; none: all");
  validate_operands(where, q, k, k, how);
  check(q.shape() == k.shape(), where, ": q has shape ", q.shape(), " and k ", k.shape(),
        ", expected the same under lsh");
  check_lsh_score(where, how);
  check(how.order == nullptr, where, ": an order of tokens is given, expected none");
  // A call without tokens checks the score and knows its scale.
  Attention score = how;
  score.pattern = full();
  score.rotations.reset();
  const AnyView nothing = stand_in({1, q.heads(), 0, q.dim()});
  const Call rule(Request{where, nothing, nothing, nothing, score, context});
  const PositionRanges ranges(split.rest, {q.tokens(), q.tokens()});
  const auto order = sort_tokens({q, k, *split.lsh, how.rotations, ranges.padding(), context});
  const Task task{q,
                  k,
                  *split.lsh,
                  split.rest,
                  rule.score_rule.scale(0),
                  how.softcap.value_or(0),
                  options,
                  *order,
                  kernels_of(context)};
  IndexedVector<LshRecall> heads(order->batch_heads());
  for_each_task(context, order->batch_heads(), [&](Index batch_head, Index) {
    heads[batch_head] = RecallHead(task, batch_head).run();
  });
  LshRecall all;
  for (const LshRecall& head : heads) {
    all.top += head.top, all.mass += head.mass, all.keys += head.keys;
    all.queries += head.queries;
  }
  const auto count = static_cast<double>(std::max<Index>(1, all.queries));
  all.top /= count, all.mass /= count, all.keys /= count;
  return all;
}

}  // namespace rapt
