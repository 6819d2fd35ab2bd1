#pragma once

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "attention/score/relative_band.h"
#include "base/threads/ordered_section.h"

namespace rapt {

/// Room for f64 sums of a query tile, taken and given back by any thread. What was given back last
/// is taken first, while it is in the caches.
class SumRooms {
 public:
  explicit SumRooms(Index numbers) : numbers_(numbers) {}

  double* take();
  void give_back(double* room);

 private:
  static constexpr Index rooms_a_slab = 16;

  Index numbers_;
  std::mutex mutex_;
  std::vector<Buffer<double>> slabs_;
  std::vector<double*> free_;
};

/// Sums of dlogit * k over all keys for every query: the one output of backward that several tasks
/// add to. Key groups add to a query tile in ascending order, and the last of them takes the sums
/// away: room is needed only for tiles between their first group and their last.
class QuerySums {
 public:
  explicit QuerySums(const Call& call);

  /// The share of one key group in the sums of a query tile.
  struct Share {
    Index owner, query_tile, key_group, group_tiles;
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
  void leave_delivery() { deliveries_.leave(0); }
  void give_up(const std::exception_ptr& why) {
    turns_.give_up(why);
    deliveries_.give_up(why);
  }

 private:
  /// Groups that visit a query tile: those before one of them, and all.
  struct Visitors {
    Index before, all;
  };
  Visitors visitors_of(const Share& share) const;
  void widen(const Share& share, double*& room, bool first);

  const Call& call_;
  SumRooms rooms_;
  std::vector<double*> room_of_;  // by owner and query tile; its turn's holder reads and writes it
  Turns turns_, deliveries_;
};

template <class Take>
void QuerySums::add(const Share& share, const Take& take) {
  const Index place = share.owner * call_.query_tiles() + share.query_tile;
  const Visitors visitors = visitors_of(share);
  turns_.enter(place, visitors.before);
  double*& room = room_of_[static_cast<std::size_t>(place)];
  if (visitors.before + 1 < visitors.all) {
    widen(share, room, visitors.before == 0);
  } else {
    take(room, share.numbers);
    std::fill(share.numbers, share.numbers + share.count, 0.0f);
    if (room != nullptr) rooms_.give_back(std::exchange(room, nullptr));
  }
  turns_.leave(place);
}

/// The gradient of a table of relative keys or values, in f64. Tasks add in their order.
class RelativeSums {
 public:
  /// `table` is null if there is none.
  explicit RelativeSums(const RelativeTiles* table);

  void add(Index task, const RelativeGradient& part);
  void give_up(std::exception_ptr why) { turns_.give_up(std::move(why)); }
  /// Times a factor.
  void write(double factor, Tensor& gradient) const;

 private:
  const RelativeTiles* table_;
  Buffer<double> sums_;
  Turns turns_;
};

}  // namespace rapt
