#include "attention/lsh_decode.h"

#include <algorithm>
#include <cmath>

#include "attention/call.h"
#include "attention/lsh_join.h"
#include "attention/pattern_node.h"
#include "base/check.h"

namespace rapt {
namespace {

constexpr const char* where = "attend over a hashed cache";
constexpr double minus_infinity = -std::numeric_limits<double>::infinity();
/// Sums of this many terms are f32; f64 joins them.
constexpr Index narrow_terms = 64;

/// One query of one head: whom it sees and what comes out.
class HashedQuery {
 public:
  HashedQuery(const KvCache::Body& cache, const Call& rule)
      : cache_(cache),
        lsh_(cache.hash->lsh()),
        thin_(cache.kernels.scattered[static_cast<int>(cache.options.type)]),
        factor_(static_cast<float>(rule.rule.query_factor(0))),
        softcap_(rule.rule.has_softcap() ? rule.rule.softcap_log2() : 0) {}

  /// The keys that the pattern lets the token at a position see, whatever its hashes are.
  void take(const KvCache::Body::Tokens& tokens, Index position, const Ranges& seen) {
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
    cache_.kernels.load_numbers(q.row(item, head, query), q.type(), dim, vector);
    for (Index c = 0; c < dim; ++c) vector[c] *= factor_;
    score(head, vector);
    return gather(head, out);
  }

 private:
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
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

  /// Positions of the keys in sight, each as often as it counts; itself apart, by round.
  void find_keys(Index head) {
    positions_.clear();
    selves_.assign(at(lsh_.rounds), 0);
    if (tokens_->count <= lsh_.chunk) {  // nothing is hashed yet
      selves_.assign(1, 1);
      for (Index key = 0; key < tokens_->count; ++key)
        if (visible(key)) positions_.push_back(static_cast<std::int32_t>(key));
      return;
    }
    for (Index round = 0; round < lsh_.rounds; ++round) find_keys(head, round);
    if (lsh_.duplicates == Lsh::Duplicates::keep) return;
    std::sort(positions_.begin(), positions_.end());
    positions_.erase(std::unique(positions_.begin(), positions_.end()), positions_.end());
  }

  /// Those that one round adds. Chunks of all rounds lie in one ring.
  void find_keys(Index head, Index round) {
    const Index per_round = divide_up(tokens_->count, lsh_.chunk);
    const Index chunks = lsh_.rounds * per_round, first_owner = head * lsh_.rounds;
    const Index here =
        round * per_round + places().slot(first_owner + round, position_) / lsh_.chunk;
    const bool once = lsh_.duplicates == Lsh::Duplicates::once;
    const Index steps =
        std::min(lsh_.before + lsh_.after + 1, once ? chunks : std::numeric_limits<Index>::max());
    near_.clear();
    for (Index step = 0; step < steps; ++step) {
      const Index chunk = ((here - lsh_.before + step) % chunks + chunks) % chunks;
      const Index first = chunk % per_round * lsh_.chunk;
      places().read(first_owner + chunk / per_round, first, first + lsh_.chunk, near_);
    }
    for (const std::int32_t key : near_) {
      selves_[at(round)] += key == position_;
      if (visible(key)) positions_.push_back(key);
    }
  }

  PageHead page_head(Index key, Index head) const {
    return cache_.head(tokens_->pages[at(key / tile)], head);
  }

  /// The token itself and nobody else, at Reformer's logit.
  double alone(Index head, float* out) {
    constexpr double self_logit = -1e5;
    std::vector<double> rounds(selves_.size());
    for (std::size_t r = 0; r < rounds.size(); ++r) rounds[r] = self_logit + std::log(selves_[r]);
    const double lse = joint_lse(rounds.data(), std::ssize(rounds), true);
    double weight = 0;
    for (const double z : rounds) weight += std::exp(z - lse);
    const PageHead page = page_head(position_, head);
    const void* row = cache_.layout.value_row(page, position_ % tile);
    const auto factor = static_cast<float>(weight) *
                        (page.scales == nullptr ? 1 : page.scales[tile + position_ % tile]);
    thin_.sum(&factor, &row, 1, cache_.layout.value_dim, out);
    return lse;
  }

  /// Logits of all positions, in units of log2.
  void score(Index head, const float* vector) {
    const Index count = std::ssize(positions_);
    rows_.resize(positions_.size());
    logits_.resize(positions_.size());
    for (Index i = 0; i < count; ++i)
      rows_[at(i)] =
          cache_.layout.key_row(page_head(positions_[at(i)], head), positions_[at(i)] % tile);
    thin_.scores(vector, rows_.data(), count, cache_.layout.dim, logits_.data());
    if (cache_.layout.scale_bytes > 0)
      for (Index i = 0; i < count; ++i)
        logits_[at(i)] *= page_head(positions_[at(i)], head).scales[positions_[at(i)] % tile];
    if (softcap_ == 0) return;
    cache_.kernels.tanh(logits_.data(), count, logits_.data());
    for (float& z : logits_) z *= softcap_;
  }

  /// Softmax over them and their values.
  double gather(Index head, float* out) {
    const Index count = std::ssize(positions_), numbers = cache_.layout.value_dim;
    float most = -std::numeric_limits<float>::infinity();
    for (const float z : logits_) most = std::isnan(z) || z > most ? z : most;
    if (!std::isfinite(most)) {  // as arithmetic has it: inf - inf
      std::fill(out, out + numbers, std::numeric_limits<float>::quiet_NaN());
      return static_cast<double>(most) * ln_2;
    }
    for (float& z : logits_) z -= most;
    cache_.kernels.exp2(logits_.data(), count, logits_.data());
    double sum = 0;
    for (const float p : logits_) sum += static_cast<double>(p);
    sum_values(head, 1 / sum, out);
    return static_cast<double>(most) * ln_2 + std::log(sum);
  }

  void sum_values(Index head, double inverse, float* out) {
    const Index count = std::ssize(positions_), numbers = cache_.layout.value_dim;
    for (Index i = 0; i < count; ++i) {
      const PageHead page = page_head(positions_[at(i)], head);
      rows_[at(i)] = cache_.layout.value_row(page, positions_[at(i)] % tile);
      if (page.scales != nullptr) logits_[at(i)] *= page.scales[tile + positions_[at(i)] % tile];
    }
    double wide[max_dim] = {};
    float narrow[max_dim] = {};
    for (Index first = 0; first < count; first += narrow_terms) {
      thin_.sum(logits_.data() + first, rows_.data() + first, std::min(narrow_terms, count - first),
                numbers, narrow);
      cache_.kernels.widen(narrow, wide, numbers);
    }
    for (Index c = 0; c < numbers; ++c) out[c] = static_cast<float>(wide[c] * inverse);
  }

  const KvCache::Body& cache_;
  const Lsh& lsh_;
  const Kernels::Scattered& thin_;
  float factor_, softcap_;
  const KvCache::Body::Tokens* tokens_ = nullptr;
  Index position_ = 0;
  const Ranges* seen_ = nullptr;
  Range first_;  // of them: mostly all there is
  bool padded_ = false;
  std::vector<std::int32_t> positions_, near_;
  std::vector<double> selves_;  // meetings with itself, by round
  std::vector<const void*> rows_;
  std::vector<float> logits_;
};

/// The leaf must be the cache's, and the score one that lsh has.
Pattern checked_rest(const AnyView& q, const KvCache::Body& cache, const Attention& how) {
  const SplitPattern split = split_lsh(how.pattern);
  check(cache.hash != nullptr, where,
        ": the pattern has an lsh leaf but the cache was made without one, expected "
        "CacheOptions::lsh");
  check(*split.lsh == cache.hash->lsh(), where, ": the pattern has ", lsh(*split.lsh).text(),
        " but the cache was made for ", lsh(cache.hash->lsh()).text(), ", expected the same");
  check(!how.rotations, where, ": rotations are given, expected them in CacheOptions::lsh");
  check(how.order == nullptr, where, ": an order of tokens is given, expected the cache's own");
  check(how.dropout.rate == 0, where, ": dropout of ", how.dropout.rate, " given, expected none");
  check_lsh_score(where, how);
  check_readable(where, "q", q);
  check(q.heads() == cache.options.kv_heads && q.dim() == cache.options.dim, where, ": q has ",
        q.heads(), " heads of dim ", q.dim(), ", expected ", cache.options.kv_heads, " of ",
        cache.options.dim, " as the cache has");
  return split.rest;
}

/// Queries of one item that one thread answers at a time, for one head.
constexpr Index query_block = 16;

}  // namespace

Attended attend_lsh_cache(const AnyView& q, const KvCache::Body& cache,
                          std::span<const KvCache::Sequence> sequences, const Attention& how,
                          const Context& context) {
  const Pattern rest = checked_rest(q, cache, how);
  std::vector<const KvCache::Body::Tokens*> items;
  for (const KvCache::Sequence sequence : sequences) {
    items.push_back(&cache.tokens_of(sequence, where));
    const Index tokens = items.back()->count;
    check(q.tokens() <= tokens, where, ": ", q.tokens(), " queries over sequence ", sequence,
          " of ", tokens, " tokens, expected no more queries than tokens, which they are");
    rest.check({q.tokens(), tokens});
  }
  const Index heads = q.heads(), queries = q.tokens(), dim = cache.layout.value_dim;
  // A call without tokens checks the score and knows its factors.
  Attention score = how;
  score.pattern = full();
  const AnyView nothing = stand_in({1, heads, 0, cache.layout.dim});
  const Call rule(where, nothing, nothing, nothing, score, context);
  Attended attended;
  attended.out = Tensor::uninitialized({q.batch(), heads, queries, dim}, q.type());
  attended.lse = Tensor({q.batch(), heads, queries});
  attended.rows.max.resize(static_cast<std::size_t>(attended.lse.elements()));
  attended.rows.sum.resize(static_cast<std::size_t>(attended.lse.elements()));
  const AnyMutableView out = attended.out;
  const Index blocks = divide_up(queries, query_block);
  Crew<HashedQuery> crew(context);
  for_each_task(context, q.batch() * heads * blocks, [&](Index task, Index worker) {
    const Index head = task % heads, block = task / heads % blocks, item = task / heads / blocks;
    const KvCache::Body::Tokens& tokens = *items[static_cast<std::size_t>(item)];
    HashedQuery& one = crew.get(worker, cache, rule);
    Ranges seen;
    float row[max_dim];
    for (Index i = block * query_block; i < std::min(queries, (block + 1) * query_block); ++i) {
      rest.keys_of(i, {queries, tokens.count}, seen);
      one.take(tokens, tokens.count - queries + i, seen);
      const double lse = one.run(q, item, head, i, row);
      cache.kernels.store_numbers(row, dim, q.type(), out.row(item, head, i));
      const Index at = (item * heads + head) * queries + i;
      const RowStatistics statistics = row_statistics(lse, true);
      attended.lse.data()[at] = static_cast<float>(lse);
      attended.rows.max[static_cast<std::size_t>(at)] = statistics.max;
      attended.rows.sum[static_cast<std::size_t>(at)] = statistics.sum;
    }
  });
  return attended;
}

}  // namespace rapt
