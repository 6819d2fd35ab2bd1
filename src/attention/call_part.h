#pragma once

#include <functional>

#include "base/indexed_vector.h"
#include "rapt/pattern.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// Where the rows of a tile are: from row `first` on in the operand, or in what came from a source.
struct TilePlace {
  static constexpr Index here = -1;
  Index first = 0;
  Index source = here;
};

/// The tiles of queries or of keys that a part of a call has.
struct PartTiles {
  IndexedVector<Index> numbers;  // in the whole call, ascending
  IndexedVector<TilePlace> places;
};

/// Neighbouring (batch item, key head) pairs, counted as item * kv_heads + kv_head.
struct HeadRange {
  Index first = 0;
  Index count = 0;
};

/// Which gradients a backward pass computes.
enum class Wanted { all, queries, keys };

/// A call may be a part of a larger one whose other tiles are elsewhere: some query tiles over some
/// key tiles. It counts its own tiles from 0; what depends on positions asks for their numbers in
/// the whole call. Between two runs the heads may change, and with them what was received.
struct CallPart {
  Lengths whole;
  PartTiles queries, keys;
  HeadRange heads;  // to be computed now
  Wanted wanted = Wanted::all;
  // By source: gradients of tiles that came from there, [1, heads.count, tokens, dim]; of queries
  // [1, heads.count * group, tokens, dim].
  const AnyMutableView *dq = nullptr, *dk = nullptr, *dv = nullptr;
  std::function<void()> progress;  // lets messages move on; the calling thread does between tasks
};

/// An operand of a call. In a part, received[source] is [1, heads.count (query heads: times the
/// group), tokens, dim].
struct Operand : AnyView {
  Operand(const AnyView& view) : AnyView(view) {}
  const AnyView* received = nullptr;
};

}  // namespace rapt::detail
