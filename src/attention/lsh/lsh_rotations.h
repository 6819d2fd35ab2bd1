#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "kernels/kernels.h"
#include "rapt/lsh.h"

namespace rapt::detail {

/// Half the sum of the bucket factors: rotations of one round.
Index lsh_half(const std::vector<Index>& factors);
/// Buckets of one round, without the one for padding.
Index lsh_bucket_count(const std::vector<Index>& factors);

/// What keys are multiplied with where they are shared with the queries.
double inverse_rms(const float* row, Index dim);

/// Random directions whose largest product with a token, positive or negative, is its bucket: for
/// every head [rounds * half] of dim numbers.
class LshRotations {
 public:
  /// Those of the leaf's seed, or `given` [heads, dim, rounds, half], which is only borrowed.
  /// Throws std::invalid_argument if its shape is another.
  LshRotations(const Lsh& lsh, const std::vector<Index>& factors, Index heads, Index dim,
               const std::optional<View>& given);

  Index dim() const { return dim_; }
  Index columns() const { return columns_; }
  /// [columns][dim]
  void copy(Index head, float* rows) const;

 private:
  float at(Index head, Index d, Index column) const;

  Index dim_, columns_;
  std::optional<View> given_;
  std::shared_ptr<const Buffer<float>> drawn_;
};

/// Buckets of one round for `count` of 64 tokens, from their products with its rotations
/// [half][64].
void find_buckets(const Kernels& kernels, const std::vector<Index>& factors, const float* rotated,
                  Index count, std::int32_t* buckets);

}  // namespace rapt::detail
