#include "attention/lsh_decode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention/call.h"
#include "attention/lsh_join.h"
#include "attention/lsh_order.h"
#include "attention/parts.h"
#include "attention/pattern_node.h"
#include "base/check.h"

namespace rapt {
namespace {

constexpr const char* where = "attend over a hashed cache";
/// Sums of this many terms are f32; f64 joins them.
constexpr Index narrow_terms = 64;

/// One query of one head: whom it sees and what comes out.
class HashedQuery {
 public:
  HashedQuery(const KvCache::Body& cache, const Call& rule)
      : cache_(cache),
        lsh_(cache.hash->lsh()),
        scattered_(cache.kernels.scattered[static_cast<int>(cache.options.type)]),
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
    selves_.assign(1, 1);
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
    const double lse =
        joint_lse(rounds.data(), std::ssize(rounds), lsh_.duplicates == Lsh::Duplicates::keep);
    double weight = 0;
    for (const double z : rounds) weight += std::exp(z - lse);
    const PageHead page = page_head(position_, head);
    const void* row = cache_.layout.value_row(page, position_ % tile);
    const auto factor = static_cast<float>(weight) *
                        (page.scales == nullptr ? 1 : page.scales[tile + position_ % tile]);
    scattered_.sum(&factor, &row, 1, cache_.layout.value_dim, out);
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
    scattered_.scores(vector, rows_.data(), count, cache_.layout.dim, logits_.data());
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
      scattered_.sum(logits_.data() + first, rows_.data() + first,
                     std::min(narrow_terms, count - first), numbers, narrow);
      cache_.kernels.widen(narrow, wide, numbers);
    }
    for (Index c = 0; c < numbers; ++c) out[c] = static_cast<float>(wide[c] * inverse);
  }

  const KvCache::Body& cache_;
  const Lsh& lsh_;
  const Kernels::Scattered& scattered_;
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

/// A call over a hashed cache.
class HashedCall {
 public:
  HashedCall(const AnyView& q, const KvCache::Body& cache,
             std::span<const KvCache::Sequence> sequences, const Attention& how,
             const Context& context, const ForwardOutput& output)
      : q_(q),
        cache_(cache),
        how_(how),
        context_(context),
        output_(output),
        rest_(checked_rest(q, cache, how)),
        score_(without_tokens(how)),
        nothing_(stand_in({1, q.heads(), 0, q.dim()})),
        rule_(where, nothing_, nothing_, nothing_, score_, context) {
    for (const KvCache::Sequence sequence : sequences) {
      items_.push_back(&cache.tokens_of(sequence, where));
      const Index tokens = items_.back()->count;
      check(q.tokens() <= tokens, where, ": ", q.tokens(), " queries over sequence ", sequence,
            " of ", tokens, " tokens, expected no more queries than tokens, which they are");
      rest_.check({q.tokens(), tokens});
    }
  }

  void run() {
    std::vector<Index> one_by_one;
    for (Index item = 0; item < q_.batch(); ++item) {
      if (is_prompt(tokens_of_item(item)))
        run_prompt(item);
      else
        one_by_one.push_back(item);
    }
    run_queries(one_by_one);
  }

 private:
  /// A call without tokens checks the score and knows its factors.
  static Attention without_tokens(Attention how) {
    how.pattern = full();
    return how;
  }
  Index numbers() const { return cache_.layout.value_dim; }
  const KvCache::Body::Tokens& tokens_of_item(Index item) const {
    return *items_[static_cast<std::size_t>(item)];
  }

  /// Where all tokens are queries, chunks meet chunks: many times faster than each query by itself.
  /// The keys are then the queries, so they must be stored as they are.
  bool is_prompt(const KvCache::Body::Tokens& tokens) const {
    return !how_.strict && cache_.options.type == CacheType::f32 && q_.tokens() == tokens.count &&
           tokens.count > lsh_query_block &&
           tokens.places->tokens_in(0, cache_.hash->padding_bucket()) == 0;
  }

  void run_prompt(Index item) {
    const KvCache::Body::Tokens& tokens = tokens_of_item(item);
    const Part part{.item = item, .items = 1, .head = 0, .heads = q_.heads()};
    const AnyView q = part_of(q_, part);
    Tensor values = Tensor::uninitialized({1, q.heads(), tokens.count, numbers()});
    for (Index head = 0; head < q.heads(); ++head)
      for (Index i = 0; i < tokens.count; ++i) {
        const PageHead page = cache_.head(tokens.pages[static_cast<std::size_t>(i / tile)], head);
        std::memcpy(values.data() + (head * tokens.count + i) * numbers(),
                    cache_.layout.value_row(page, i % tile),
                    static_cast<std::size_t>(numbers()) * sizeof(float));
      }
    Attention how = how_;
    how.order = order_of({q, q, cache_.hash->lsh(), how.rotations, {}, context_}, *tokens.places);
    const Attended y = attend_into(part_of(output_.out, part), q, q, values, how, context_);
    if (output_.rows == nullptr) return;
    const Index first = item * q.heads() * q.tokens();
    std::copy(y.lse.numbers().begin(), y.lse.numbers().end(), output_.lse->data() + first);
    std::copy(y.rows.max.begin(), y.rows.max.end(), output_.rows->max.begin() + first);
    std::copy(y.rows.sum.begin(), y.rows.sum.end(), output_.rows->sum.begin() + first);
  }

  void run_queries(const std::vector<Index>& items) {
    const Index heads = q_.heads(), blocks = divide_up(q_.tokens(), lsh_query_block);
    Crew<HashedQuery> crew(context_);
    for_each_task(context_, std::ssize(items) * heads * blocks, [&](Index task, Index worker) {
      const Index item = items[static_cast<std::size_t>(task / heads / blocks)];
      const Index first = task / heads % blocks * lsh_query_block;
      run_block(crew.get(worker, cache_, rule_), item, task % heads, first);
    });
  }

  void run_block(HashedQuery& one, Index item, Index head, Index first) {
    const KvCache::Body::Tokens& tokens = tokens_of_item(item);
    Ranges seen;
    float row[max_dim];
    for (Index i = first; i < std::min(q_.tokens(), first + lsh_query_block); ++i) {
      rest_.keys_of(i, {q_.tokens(), tokens.count}, seen);
      one.take(tokens, tokens.count - q_.tokens() + i, seen);
      const double lse = one.run(q_, item, head, i, row);
      cache_.kernels.store_numbers(row, numbers(), output_.out.type(),
                                   output_.out.row(item, head, i));
      if (output_.rows == nullptr) continue;
      const Index at = (item * q_.heads() + head) * q_.tokens() + i;
      const RowStatistics statistics = row_statistics(lse, true);
      output_.lse->data()[at] = static_cast<float>(lse);
      output_.rows->max[static_cast<std::size_t>(at)] = statistics.max;
      output_.rows->sum[static_cast<std::size_t>(at)] = statistics.sum;
    }
  }

  const AnyView& q_;
  const KvCache::Body& cache_;
  const Attention& how_;
  const Context& context_;
  const ForwardOutput& output_;
  Pattern rest_;
  Attention score_;
  AnyView nothing_;
  Call rule_;
  std::vector<const KvCache::Body::Tokens*> items_;
};

}  // namespace

void attend_lsh_cache(const AnyView& q, const KvCache::Body& cache,
                      std::span<const KvCache::Sequence> sequences, const Attention& how,
                      const Context& context, const ForwardOutput& output) {
  HashedCall(q, cache, sequences, how, context, output).run();
}

void check_lsh_cache(const AnyView& q, const KvCache::Body& cache,
                     std::span<const KvCache::Sequence> sequences, const Attention& how,
                     const Context& context) {
  Tensor nothing({q.batch(), q.heads(), 0, cache.layout.value_dim});
  const ForwardOutput output{nothing, nullptr, nullptr, nullptr};
  HashedCall(q, cache, sequences, how, context, output);
}

}  // namespace rapt
