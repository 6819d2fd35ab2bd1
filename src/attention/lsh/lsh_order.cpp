#include "attention/lsh/lsh_order.h"

#include <algorithm>
#include <numeric>

#include "attention/call.h"
#include "attention/lsh/lsh_rotations.h"
#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt::detail {

/// Hashes and sorts one head after the other.
class LshSorter {
 public:
  LshSorter(const LshInput& input, const std::vector<Index>& factors, const LshRotations& rotations)
      : input_(input),
        kernels_(kernels_of(input.context)),
        factors_(factors),
        rotations_(rotations),
        half_(lsh_half(factors)),
        bucket_count_(lsh_bucket_count(factors) + 1),  // and one for padding
        rows_(rotations.columns() * input.q.dim()),
        strips_(round_up(rotations.columns(), tile) * input.q.dim()),
        panels_(tile * input.q.dim()),
        rotated_(round_up(rotations.columns(), tile) * tile),
        buckets_(checked_product({input.lsh.rounds, input.q.tokens()})) {}

  void run(const AnyView& vectors, Index item, Index head, std::int32_t* order,
           const LshOrder& how) {
    pack_rotations(head);
    hash(vectors, item, head);
    for (Index round = 0; round < input_.lsh.rounds; ++round)
      sort(round, order + round * how.sorted_per_round(), how.sorted_per_round());
  }

  static std::shared_ptr<LshOrder> unsorted(const LshInput& input) {
    const Index tokens = input.q.tokens(), batch_heads = input.q.batch() * input.q.heads();
    auto order = std::make_shared<LshOrder>();
    order->lsh_ = input.lsh;
    order->batch_heads_ = batch_heads;
    order->tokens_ = order->sorted_per_round_ = tokens;
    order->queries_ = Buffer<std::int32_t>(checked_product({batch_heads, tokens}));
    for (Index batch_head = 0; batch_head < batch_heads; ++batch_head)
      std::iota(order->queries_.begin() + batch_head * tokens,
                order->queries_.begin() + (batch_head + 1) * tokens, 0);
    return order;
  }

  static std::shared_ptr<LshOrder> allocate(const LshInput& input) {
    auto order = std::make_shared<LshOrder>();
    order->tokens_ = input.q.tokens();
    order->rounds_ = input.lsh.rounds;
    order->sorted_ = true;
    order->lsh_ = input.lsh;
    order->batch_heads_ = input.q.batch() * input.q.heads();
    order->sorted_per_round_ = round_up(order->tokens_, input.lsh.chunk);
    check(order->sorted_count() <= std::numeric_limits<std::int32_t>::max(),
          "lsh: ", order->tokens_, " tokens in ", order->rounds_,
          " rounds, expected fewer than 2^31 in all");
    const Index size = checked_product({input.q.batch(), input.q.heads(), order->sorted_count()});
    order->queries_ = Buffer<std::int32_t>(size);
    if (input.lsh.keys == Lsh::Keys::separate) order->keys_ = Buffer<std::int32_t>(size);
    return order;
  }

  /// The same but for its numbers, with room for so many heads.
  static std::shared_ptr<LshOrder> like(const LshOrder& from, Index heads) {
    auto order = std::make_shared<LshOrder>();
    order->lsh_ = from.lsh_;
    order->batch_heads_ = heads;
    order->tokens_ = from.tokens_;
    order->rounds_ = from.rounds_;
    order->sorted_per_round_ = from.sorted_per_round_;
    order->sorted_ = from.sorted_;
    const Index size = checked_product({heads, from.sorted_count()});
    order->queries_ = Buffer<std::int32_t>(size);
    if (from.keys_.size() > 0) order->keys_ = Buffer<std::int32_t>(size);
    return order;
  }
  static void copy_head(const LshOrder& from, Index head, LshOrder& to, Index to_head) {
    std::copy_n(from.queries(head), from.sorted_count(), queries(to, to_head));
    if (from.keys_.size() > 0) std::copy_n(from.keys(head), from.sorted_count(), keys(to, to_head));
  }

  static std::int32_t* queries(LshOrder& order, Index batch_head) {
    return order.queries_.data() + batch_head * order.sorted_count();
  }
  static std::int32_t* keys(LshOrder& order, Index batch_head) {
    return order.keys_.size() == 0 ? nullptr
                                   : order.keys_.data() + batch_head * order.sorted_count();
  }

 private:
  void pack_rotations(Index head) {
    const Index dim = rotations_.dim();
    rotations_.copy(head, rows_.data());
    for (Index first = 0; first < rotations_.columns(); first += tile) {
      const Index count = std::min(tile, rotations_.columns() - first);
      kernels_.tiles.pack_strips({rows_.data() + first * dim, Type::f32, dim, count}, dim, nullptr,
                                 strips_.data() + first * dim);
    }
  }

  /// Rotations as left, tokens as right operand: the largest is then looked for down the columns.
  void hash(const AnyView& vectors, Index item, Index head) {
    const Index tokens = vectors.tokens(), dim = vectors.dim();
    for (Index first = 0; first < tokens; first += tile) {
      const Index count = std::min(tile, tokens - first);
      kernels_.tiles.pack_panels(rows_of(vectors, item, head, first, count), dim, nullptr,
                                 panels_.data());
      for (Index c = 0; c < rotations_.columns(); c += tile) {
        const Index columns = std::min(tile, rotations_.columns() - c);
        kernels_.tiles.scores(strips_.data() + c * dim, panels_.data(), dim,
                              divide_up(columns, strip), nullptr, rotated_.data() + c * tile);
      }
      for (Index round = 0; round < input_.lsh.rounds; ++round)
        find_round_buckets(round, first, count);
    }
  }

  void find_round_buckets(Index round, Index first, Index count) {
    std::int32_t* to = buckets_.data() + round * input_.q.tokens() + first;
    find_buckets(kernels_, factors_, rotated_.data() + round * half_ * tile, count, to);
    if (input_.padding.empty()) return;
    for (Index i = 0; i < count; ++i) {
      if (input_.padding[first + i]) to[i] = static_cast<std::int32_t>(bucket_count_ - 1);
    }
  }

  /// Stable, by counting.
  void sort(Index round, std::int32_t* order, Index sorted_count) {
    const Index tokens = input_.q.tokens();
    const std::int32_t* buckets = buckets_.data() + round * tokens;
    begins_.assign(bucket_count_ + 1, 0);
    for (Index i = 0; i < tokens; ++i) ++begins_[buckets[i] + 1];
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    for (Index i = 0; i < tokens; ++i) order[begins_[buckets[i]]++] = static_cast<std::int32_t>(i);
    std::fill(order + tokens, order + sorted_count, LshOrder::none);
  }

  const LshInput& input_;
  const Kernels& kernels_;
  const std::vector<Index>& factors_;
  const LshRotations& rotations_;
  Index half_, bucket_count_;
  Buffer<float> rows_, strips_, panels_, rotated_;
  Buffer<std::int32_t> buckets_;
  IndexedVector<Index> begins_;
};

std::shared_ptr<const LshOrder> sort_tokens(const LshInput& input) {
  const AnyView& q = input.q;
  check(q.tokens() <= std::numeric_limits<std::int32_t>::max() / 2, "lsh: ", q.tokens(),
        " tokens, expected fewer than 2^30");
  if (q.tokens() <= input.lsh.chunk) return LshSorter::unsorted(input);
  const std::vector<Index> factors =
      input.lsh.buckets.empty() ? lsh_buckets(q.tokens(), input.lsh.chunk) : input.lsh.buckets;
  const LshRotations rotations(input.lsh, factors, q.heads(), q.dim(), input.rotations);
  const std::shared_ptr<LshOrder> order = LshSorter::allocate(input);
  Workers<LshSorter> workers(input.context);
  for_each_task(input.context, q.batch() * q.heads(), [&](Index batch_head, Index worker) {
    LshSorter& sorter = workers.get(worker, input, factors, rotations);
    const Index item = batch_head / q.heads(), head = batch_head % q.heads();
    sorter.run(q, item, head, LshSorter::queries(*order, batch_head), *order);
    if (std::int32_t* keys = LshSorter::keys(*order, batch_head))
      sorter.run(input.k, item, head, keys, *order);
  });
  return order;
}

std::shared_ptr<const LshOrder> order_of(const LshInput& input, const LshPlaces& places) {
  if (input.q.tokens() <= input.lsh.chunk) return LshSorter::unsorted(input);
  const std::shared_ptr<LshOrder> order = LshSorter::allocate(input);
  IndexedVector<std::int32_t> round;
  for (Index batch_head = 0; batch_head < order->batch_heads(); ++batch_head)
    for (Index r = 0; r < order->rounds(); ++r) {
      round.clear();
      places.read(batch_head * order->rounds() + r, 0, order->tokens(), round);
      round.resize(order->sorted_per_round(), LshOrder::none);
      std::copy(round.begin(), round.end(),
                LshSorter::queries(*order, batch_head) + r * order->sorted_per_round());
    }
  return order;
}

std::shared_ptr<const LshOrder> join_heads(
    const std::vector<std::shared_ptr<const LshOrder>>& heads) {
  if (heads.empty()) return nullptr;
  const std::shared_ptr<LshOrder> all = LshSorter::like(*heads.front(), std::ssize(heads));
  for (Index head = 0; head < std::ssize(heads); ++head)
    LshSorter::copy_head(*element(heads, head), 0, *all, head);
  return all;
}

std::shared_ptr<const LshOrder> head_of(const LshOrder& order, Index batch_head) {
  const std::shared_ptr<LshOrder> one = LshSorter::like(order, 1);
  LshSorter::copy_head(order, batch_head, *one, 0);
  return one;
}

std::shared_ptr<const LshOrder> keep_order(const LshInput& input) {
  if (input.q.tokens() <= input.lsh.chunk) return LshSorter::unsorted(input);
  const std::shared_ptr<LshOrder> order = LshSorter::allocate(input);
  for (Index batch_head = 0; batch_head < order->batch_heads(); ++batch_head)
    for (std::int32_t* to :
         {LshSorter::queries(*order, batch_head), LshSorter::keys(*order, batch_head)})
      for (Index s = 0; to != nullptr && s < order->sorted_count(); ++s) {
        const Index place = s % order->sorted_per_round();
        to[s] = place < order->tokens() ? static_cast<std::int32_t>(place) : LshOrder::none;
      }
  return order;
}

}  // namespace rapt::detail
