#pragma once

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "attention/backward/key_groups.h"
#include "attention/call.h"
#include "attention/score/relative_gradient.h"
#include "base/indexed_vector.h"
#include "base/threads/ordered_section.h"

namespace rapt::detail {

/// Memory for f64 sums of query tiles, acquired and released by any thread. What was released last
/// is acquired first, while it is in the caches.
class SumScratch {
 public:
  explicit SumScratch(Index numbers) : numbers_(numbers) {}

  double* acquire();
  void release(double* sums);

 private:
  static constexpr Index sums_per_slab = 16;

  Index numbers_;
  std::mutex mutex_;
  std::vector<Buffer<double>> slabs_;
  std::vector<double*> free_;
};

/// Sums of dlogit * k over all keys for every query: the one output of backward that several tasks
/// add to. Key groups add to a query tile in ascending order, and the last of them takes the sums:
/// tiles need memory only between their first group and their last.
class QuerySums {
 public:
  /// `width` is that of packed queries.
  QuerySums(const Call& call, const KeyGroups& groups, Index width);

  /// The share of one key group in the sums of a query tile.
  struct Share {
    Index batch_head, query_tile, key_group;
    float* numbers;  // [count]
    Index count;
  };
  /// Adds the share when all groups before it have added theirs, and clears its numbers. The last
  /// one does not add: take(wide, numbers) gets what the others gave, null if there was none, and
  /// the share itself.
  template <class Take>
  void add(const Share& share, const Take& take);
  /// Where tokens have an order several groups write to one row: they do so in ascending order.
  void enter_delivery(Index key_group) { deliveries_.enter(0, key_group); }
  void release_delivery() { deliveries_.release(0); }
  void abort(const std::exception_ptr& why) {
    additions_.abort(why);
    deliveries_.abort(why);
  }

 private:
  /// Groups that visit a query tile: those before one of them, and all.
  struct Visitors {
    Index before, all;
  };
  Visitors visitors_of(const Share& share) const;
  void widen(const Share& share, double*& sums, bool first);

  const Call& call_;
  const KeyGroups& groups_;
  SumScratch scratch_;
  IndexedVector<double*> sums_of_;  // by (item, head) and query tile; guarded by additions_
  OrderedSection additions_, deliveries_;
};

template <class Take>
void QuerySums::add(const Share& share, const Take& take) {
  const Index place = share.batch_head * call_.query_tiles() + share.query_tile;
  const Visitors visitors = visitors_of(share);
  additions_.enter(place, visitors.before);
  double*& sums = sums_of_[place];
  if (visitors.before + 1 < visitors.all) {
    widen(share, sums, visitors.before == 0);
  } else {
    take(sums, share.numbers);
    std::fill(share.numbers, share.numbers + share.count, 0.0f);
    if (sums != nullptr) scratch_.release(std::exchange(sums, nullptr));
  }
  additions_.release(place);
}

/// The gradient of a table of relative keys or values, in f64. Tasks add in their order.
class RelativeSums {
 public:
  /// `table` is null if there is none.
  explicit RelativeSums(const RelativeTiles* table);

  void add(Index task, const RelativeGradient& part);
  void abort(std::exception_ptr why) { additions_.abort(std::move(why)); }
  /// Times a factor.
  void write(double factor, Tensor& gradient) const;
  /// What was added so far.
  std::span<double> sums() { return {sums_.begin(), sums_.end()}; }

 private:
  const RelativeTiles* table_;
  Buffer<double> sums_;
  OrderedSection additions_;
};

}  // namespace rapt::detail
