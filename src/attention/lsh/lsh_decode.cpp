#include "attention/lsh/lsh_decode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "attention/call.h"
#include "attention/lsh/lsh_attend.h"
#include "attention/lsh/lsh_order.h"
#include "attention/lsh/row_statistics.h"
#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt::detail {
namespace {

/// Sums of this many terms are f32; f64 joins them.
constexpr Index narrow_terms = 64;

/// One query of one head: the keys it sees, and its output.
class HashedQuery {
 public:
  HashedQuery(const KvCache::Impl& cache, const Call& call)
      : cache_(cache),
        lsh_(cache.hash->lsh()),
        scattered_(cache.kernels.decode.scattered[cache.options.type]),
        factor_(static_cast<float>(call.score_rule.query_factor(0))),
        softcap_(call.score_rule.has_softcap() ? call.score_rule.softcap_log2() : 0) {}

  /// The keys that the pattern lets the token at a position see, whatever its hashes are.
  void set_query(const KvCache::Impl::Tokens& tokens, Index position, const Ranges& seen) {
    tokens_ = &tokens;
    position_ = position;
    seen_ = &seen;
    first_ = seen.empty() ? Range{} : seen.front();
    padded_ = places().tokens_in(0, cache_.hash->padding_bucket()) > 0;
  }

  /// Writes the output row; its denominator as a natural logarithm comes back.
  double run(const AnyView& q, Index item, Index head, Index query, float* out) {
    find_keys(head);
    const Index dim = cache_.layout.dim, numbers = cache_.layout.value_dim;
    std::fill(out, out + numbers, 0.0f);
    if (positions_.empty()) return alone(head, out);
    float vector[max_dim];
    cache_.kernels.vectors.load(q.row(item, head, query), q.type(), dim, vector);
    for (Index c = 0; c < dim; ++c) vector[c] *= factor_;
    score(head, vector);
    return attend(head, out);
  }

 private:
  const LshPlaces& places() const { return *tokens_->places; }

  bool visible(Index key) const {
    if (key == position_) return false;
    if (padded_ && places().bucket(0, key) == cache_.hash->padding_bucket()) return false;
    if (first_.begin <= key && key < first_.end) return true;
    if (seen_->size() < 2) return false;
    const auto after = std::upper_bound(seen_->begin(), seen_->end(), key,
                                        [](Index k, const Range& r) { return k < r.begin; });
    return after != seen_->begin() && key < std::prev(after)->end;
  }

  /// Positions of the visible keys, each as often as it counts; itself apart, by round.
  void find_keys(Index head) {
    positions_.clear();
    selves_.assign(lsh_.rounds, 0);
    if (tokens_->count <= lsh_.chunk) {  // nothing is hashed yet
      selves_.assign(1, 1);
      for (Index key = 0; key < tokens_->count; ++key)
        if (visible(key)) positions_.push_back(static_cast<std::int32_t>(key));
      return;
    }
    for (Index round = 0; round < lsh_.rounds; ++round) find_keys(head, round);
    if (lsh_.duplicates == Lsh::Duplicates::keep) return;
    selves_.assign(1, 1);
    std::sort(positions_.begin(), positions_.end());
    positions_.erase(std::unique(positions_.begin(), positions_.end()), positions_.end());
  }

  /// Those that one round adds. Chunks of all rounds are in one ring.
  void find_keys(Index head, Index round) {
    const Index per_round = divide_up(tokens_->count, lsh_.chunk);
    const Index chunks = lsh_.rounds * per_round, first_round = head * lsh_.rounds;
    const Index here =
        round * per_round + places().sorted_index(first_round + round, position_) / lsh_.chunk;
    const bool once = lsh_.duplicates == Lsh::Duplicates::once;
    const Index steps =
        std::min(lsh_.before + lsh_.after + 1, once ? chunks : std::numeric_limits<Index>::max());
    near_.clear();
    for (Index step = 0; step < steps; ++step) {
      const Index chunk = ((here - lsh_.before + step) % chunks + chunks) % chunks;
      const Index first = chunk % per_round * lsh_.chunk;
      places().read(first_round + chunk / per_round, first, first + lsh_.chunk, near_);
    }
    for (const std::int32_t key : near_) {
      selves_[round] += key == position_;
      if (visible(key)) positions_.push_back(key);
    }
  }

  PageHead page_head(Index key, Index head) const {
    return cache_.head(tokens_->pages[key / tile], head);
  }

  /// The token itself and no other, at Reformer's logit.
  double alone(Index head, float* out) {
    constexpr double self_logit = -1e5;
    std::vector<double> rounds(selves_.size());
    for (std::size_t r = 0; r < rounds.size(); ++r) rounds[r] = self_logit + std::log(selves_[r]);
    const double lse =
        joint_lse(rounds.data(), std::ssize(rounds), lsh_.duplicates == Lsh::Duplicates::keep);
    double weight = 0;
    for (const double z : rounds) weight += std::exp(z - lse);
    const PageHead page = page_head(position_, head);
    const void* row = cache_.layout.value_row(page, position_ % tile);
    const auto factor = static_cast<float>(weight) *
                        (page.scales == nullptr ? 1 : page.scales[tile + position_ % tile]);
    scattered_.accumulate_values(&factor, &row, 1, cache_.layout.value_dim, out);
    return lse;
  }

  /// Logits of all positions, in units of log2.
  void score(Index head, const float* vector) {
    const Index count = std::ssize(positions_);
    rows_.resize(positions_.size());
    logits_.resize(positions_.size());
    for (Index i = 0; i < count; ++i)
      rows_[i] = cache_.layout.key_row(page_head(positions_[i], head), positions_[i] % tile);
    scattered_.scores(vector, rows_.data(), count, cache_.layout.dim, logits_.data());
    if (cache_.layout.scale_bytes > 0)
      for (Index i = 0; i < count; ++i)
        logits_[i] *= page_head(positions_[i], head).scales[positions_[i] % tile];
    if (softcap_ == 0) return;
    cache_.kernels.vectors.tanh(logits_.data(), count, logits_.data());
    for (float& z : logits_) z *= softcap_;
  }

  /// Softmax over them and their values.
  double attend(Index head, float* out) {
    const Index count = std::ssize(positions_), numbers = cache_.layout.value_dim;
    float most = -std::numeric_limits<float>::infinity();
    for (const float z : logits_) most = std::isnan(z) || z > most ? z : most;
    if (!std::isfinite(most)) {  // as arithmetic has it: inf - inf
      std::fill(out, out + numbers, std::numeric_limits<float>::quiet_NaN());
      return static_cast<double>(most) * ln_2;
    }
    for (float& z : logits_) z -= most;
    cache_.kernels.vectors.exp2(logits_.data(), count, logits_.data());
    double sum = 0;
    for (const float p : logits_) sum += static_cast<double>(p);
    sum_values(head, 1 / sum, out);
    return static_cast<double>(most) * ln_2 + std::log(sum);
  }

  void sum_values(Index head, double inverse, float* out) {
    const Index count = std::ssize(positions_), numbers = cache_.layout.value_dim;
    for (Index i = 0; i < count; ++i) {
      const PageHead page = page_head(positions_[i], head);
      rows_[i] = cache_.layout.value_row(page, positions_[i] % tile);
      if (page.scales != nullptr) logits_[i] *= page.scales[tile + positions_[i] % tile];
    }
    double wide[max_dim] = {};
    float narrow[max_dim] = {};
    for (Index first = 0; first < count; first += narrow_terms) {
      scattered_.accumulate_values(logits_.data() + first, rows_.data() + first,
                                   std::min(narrow_terms, count - first), numbers, narrow);
      cache_.kernels.vectors.widen(narrow, wide, numbers);
    }
    for (Index c = 0; c < numbers; ++c) out[c] = static_cast<float>(wide[c] * inverse);
  }

  const KvCache::Impl& cache_;
  const Lsh& lsh_;
  const DecodeKernels::Scattered& scattered_;
  float factor_, softcap_;
  const KvCache::Impl::Tokens* tokens_ = nullptr;
  Index position_ = 0;
  const Ranges* seen_ = nullptr;
  Range first_;  // the first range of seen_; mostly the only one
  bool padded_ = false;
  IndexedVector<std::int32_t> positions_, near_;
  IndexedVector<double> selves_;  // how often the query's own token is among its keys, by round
  IndexedVector<const void*> rows_;
  IndexedVector<float> logits_;
};

/// Requests over one hashed cache that look up each query separately.
class HashedBatch {
 public:
  explicit HashedBatch(std::span<const Job> jobs)
      : jobs_(jobs),
        first_(jobs.front().request),
        cache_(*first_.cached->cache),
        score_(without_tokens(first_.how)),
        nothing_(stand_in({1, first_.q.heads(), 0, first_.q.dim()})),
        call_(Request{first_.where, nothing_, nothing_, nothing_, score_, first_.context}) {}

  void run() {
    const Index heads = first_.q.heads(), queries = first_.queries();
    const Index blocks = divide_up(queries, lsh_query_block);
    Workers<HashedQuery> workers(first_.context);
    for_each_task(first_.context, std::ssize(jobs_) * heads * blocks,
                  [&](Index task, Index worker) {
                    const Job& job = element(jobs_, task / heads / blocks);
                    const Index first = task / heads % blocks * lsh_query_block;
                    run_block(workers.get(worker, cache_, call_), job, task % heads, first);
                  });
  }

 private:
  /// A call without tokens knows the factors of the score.
  static Attention without_tokens(Attention how) {
    how.pattern = full();
    return how;
  }
  Index numbers() const { return cache_.layout.value_dim; }

  void run_block(HashedQuery& one, const Job& job, Index head, Index first) {
    const Request& r = job.request;
    const KvCache::Impl::Tokens& tokens = *r.cached->tokens;
    const Pattern rest = split_lsh(r.how.pattern).rest;
    Ranges seen;
    float row[max_dim];
    for (Index i = first; i < std::min(r.queries(), first + lsh_query_block); ++i) {
      rest.keys_of(i, {r.queries(), tokens.count}, seen);
      one.set_query(tokens, tokens.count - r.queries() + i, seen);
      const double lse = one.run(r.q, 0, head, i, row);
      cache_.kernels.vectors.store(row, numbers(), job.output.out.type(),
                                   job.output.out.row(0, head, i));
      if (job.output.rows == nullptr) continue;
      const Index at = job.output.first_row + head * r.queries() + i;
      const RowStatistics statistics = row_statistics(lse, true);
      job.output.lse->data()[at] = static_cast<float>(lse);
      element(job.output.rows->max, at) = statistics.max;
      element(job.output.rows->sum, at) = statistics.sum;
    }
  }

  std::span<const Job> jobs_;
  const Request& first_;
  const KvCache::Impl& cache_;
  Attention score_;
  AnyView nothing_;
  Call call_;
};

}  // namespace

void run_lsh_decode(std::span<const Job> jobs) { HashedBatch(jobs).run(); }

void run_lsh_prompt(const Job& job) {
  const Request& r = job.request;
  const KvCache::Impl& cache = *r.cached->cache;
  const KvCache::Impl::Tokens& tokens = *r.cached->tokens;
  const Index numbers = cache.layout.value_dim;
  Tensor values = Tensor::uninitialized({1, r.q.heads(), tokens.count, numbers});
  for (Index head = 0; head < r.q.heads(); ++head)
    for (Index i = 0; i < tokens.count; ++i) {
      const PageHead page = cache.head(tokens.pages[i / tile], head);
      std::memcpy(values.data() + (head * tokens.count + i) * numbers,
                  cache.layout.value_row(page, i % tile), to_size(numbers) * sizeof(float));
    }
  Attention how = r.how;
  how.order = order_of({r.q, r.q, cache.hash->lsh(), how.rotations, {}, r.context}, *tokens.places);
  Rows* const rows = job.output.rows;
  run_lsh({r.where, r.q, r.q, values, how, r.context}, job.output);
  if (rows != nullptr) rows->order.reset();  // of one item, and of no use without backward
}

std::string describe_lsh_decode(const Request& request) {
  const Lsh lsh = *split_lsh(request.how.pattern).lsh;
  const Index tokens = request.keys();
  std::ostringstream text;
  text << "kernel    f32 over keys and values in rows, exact softmax\n"
       << "work      each query by itself: "
       << (tokens <= lsh.chunk
               ? "all " + std::to_string(tokens) + " tokens, no more than one chunk"
               : std::to_string(lsh.rounds * (1 + lsh.before + lsh.after)) + " chunks of " +
                     std::to_string(lsh.chunk) + " tokens, found through counts of the buckets")
       << "\ntasks     " << request.q.batch() * request.q.heads()
       << " heads, up to 16 queries at a time\n";
  return text.str();
}

}  // namespace rapt::detail
