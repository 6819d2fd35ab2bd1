#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/indexed_vector.h"
#include "rapt/plan.h"

namespace rapt {
using namespace detail;

/// The runs of many tiles, one tile after another.
struct RunLists {
  IndexedVector<Index> begins;  // one more than tiles
  IndexedVector<Visit> visits;

  std::span<const Visit> of(Index tile) const {
    return {visits.data() + begins[tile], visits.data() + begins[tile + 1]};
  }
  Index bytes() const;
};

/// One word per query row, as Plan::mask gives it. Kernels read word by word.
struct MaskWords {
  std::array<std::uint64_t, Plan::tile> rows{};
  bool operator==(const MaskWords&) const = default;
};

struct Plan::Impl {
  Pattern pattern;
  Lengths lengths;
  Index query_tiles = 0;
  Index key_tiles = 0;
  RunLists forward;
  IndexedVector<MaskWords> masks;
  IndexedVector<Index> keys_seen;  // per query
  Index pairs = 0;
  Index whole_tiles = 0;
  Index masked_tiles = 0;

  const RunLists& backward() const;
  Index bytes() const;

 private:
  mutable std::once_flag backward_once_;
  mutable RunLists backward_;
  mutable std::atomic<Index> backward_bytes_ =
      0;  // bytes() may run while another thread transposes
};

}  // namespace rapt

namespace rapt::detail {

/// The same visited tiles, listed by key tile. Time and memory follow the runs of both lists, not
/// the visited tiles.
RunLists transpose(const RunLists& forward, Index query_tiles, Index key_tiles);

/// Compiles `pattern`, which must fit the lengths, into an impl whose lengths and tile counts are
/// set.
void compile(const Pattern& pattern, Plan::Impl& impl);

}  // namespace rapt::detail
