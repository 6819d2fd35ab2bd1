#pragma once

#include <map>
#include <vector>

#include "rapt/lsh.h"
#include "support/truth/definition.h"

namespace rapt::test {

/// What one query of one head gets from hashed attention, straight from the definition and in
/// doubles: tokens are hashed, sorted and cut into chunks; the chunks of all rounds form a ring.
/// Shared keys, buckets named, rotations of the seed.
class HashedTruth {
 public:
  HashedTruth(const Lsh& lsh, Index heads, Index dim);

  /// x, v [1, heads, tokens, ...]; padding by position. A token that sees only itself gets its
  /// value, without the rounding of denominators at -1e5.
  Doubles out(const Tensor& x, const Tensor& v, Index head, Index position, const Pattern& rest,
              const std::vector<bool>& padding = {}) const;

 private:
  double logit(const Tensor& x, Index head, Index i, Index j) const;
  Index bucket(const Tensor& x, Index head, Index round, Index token) const;
  std::vector<Index> sorted(const Tensor& x, Index head, Index round,
                            const std::vector<bool>& padding) const;
  /// How often each key counts.
  std::map<Index, double> meetings(const Tensor& x, Index head, Index position,
                                   const std::vector<bool>& padding) const;

  Lsh lsh_;
  Index dim_, half_;
  std::vector<float> rotations_;
};

}  // namespace rapt::test
