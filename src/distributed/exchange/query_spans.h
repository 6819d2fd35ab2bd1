#pragma once

#include <vector>

#include "attention/pattern/pattern_node.h"
#include "base/indexed_vector.h"

namespace rapt::detail {

/// Neighbouring query tiles and the key tiles that they visit, in all.
struct QuerySpan {
  Index first = 0, tiles = 0;
  Ranges keys;              // tiles that any of them visits
  double visits = 0;        // tiles that all of them visit, together
  double pairs = 0;         // (query, key) pairs
  double computed() const;  // pairs that the kernels compute
};

/// Estimates spans of a pattern from a few queries: at both ends of a span, and where their key
/// ranges differ in number, from more queries in between.
class SpanSampler {
 public:
  SpanSampler(const Pattern& pattern, Index tokens);

  /// Spans of tiles first .. first + tiles - 1, about so many.
  std::vector<QuerySpan> spans(Index first, Index tiles, Index pieces);

 private:
  struct TileSample {
    Ranges keys;  // tiles
    double visits = 0, pairs = 0;
  };

  TileSample sample(Index tile, Index step);
  void add(Index first, Index tiles, Index splits, std::vector<QuerySpan>& spans);
  const Ranges& keys_of(Index query);

  const Pattern::Node& node_;
  Pattern pattern_;
  Lengths lengths_;
  std::vector<Ranges> scratch_;
  Ranges keys_;
};

}  // namespace rapt::detail
