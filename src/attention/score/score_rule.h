#pragma once

#include <cassert>
#include <cstdint>
#include <mutex>

#include "base/buffer.h"
#include "base/indexed_vector.h"
#include "kernels/kernels.h"
#include "rapt/attention.h"

namespace rapt::detail {

inline constexpr double log2_e = 1.4426950408889634074;
inline constexpr double ln_2 = 0.69314718055994530942;

/// What multiplies q·k of a query that sees so many keys.
double scale_of(const Scale& scale, Index dim, Index seen);
/// Scale and soft-cap are packed into the queries, whose numbers must neither overflow nor vanish.
bool factor_fits(double factor);

/// How scores become logits in this call, resolved into tables the kernels can add. Logits are in
/// units of log2.
class ScoreRule {
 public:
  /// `plan` may be that of a part of a call with these lengths: it numbers queries of scale(),
  /// everything else counts tiles and positions of the whole call.
  ScoreRule(const Attention& how, const Plan& plan, Lengths lengths, Index heads, Index dim);

  /// What multiplies q·k of this query.
  double scale(Index query) const;
  bool scale_varies() const { return how_->scale.rule == Scale::Rule::log_n; }
  /// An upper bound of its size over all queries.
  double largest_scale() const;
  /// What q is multiplied by when it is packed: scale, and log2(e) or 1 / softcap.
  double query_factor(Index query) const;
  /// From sums over packed queries to gradients of k.
  double key_gradient_factor() const { return softcap_ > 0 ? softcap_ : ln_2; }

  bool has_softcap() const { return softcap_ > 0; }
  float softcap_log2() const { return static_cast<float>(softcap_ * log2_e); }

  /// Bias by relative position: diagonal(head)[key position - query position], null if there is
  /// none. The first call makes the tables of all heads.
  const float* diagonal(Index head) const;
  /// The same numbers for relative positions first .. first + count - 1, without tables: for calls
  /// whose few queries would not repay them.
  void diagonal_part(Index head, Index first, Index count, float* out) const;
  bool has_diagonal() const { return diagonal_length_ > 0; }
  /// Slopes of KERPLE's bias in its amplitude and in its rate.
  struct KerpleSlopes {
    double amplitude, rate;
  };
  KerpleSlopes kerple_slopes(Index head, Index relative) const;
  /// T5 bucket of a relative position, looked up; only after diagonal().
  std::int32_t bucket(Index relative) const {
    assert(!buckets_.empty());
    return buckets_[relative + offset_];
  }

  /// Dense bias of a tile in units of log2, zero outside the rows and keys that exist. A bias of
  /// -inf hides its pair: its bit in `mask` is cleared. True if any was.
  bool dense_tile(Index item, Index head, Index query_tile, Index key_tile, float* out,
                  std::uint64_t* mask) const;
  bool has_dense() const { return how_->bias.dense.has_value(); }

  bool has_sinks() const { return !how_->sinks.empty(); }
  double sink_log2(Index head) const;

  bool has_dropout() const { return how_->dropout.rate > 0; }
  /// What dropout multiplies by what it keeps.
  double kept_factor() const;
  DropoutTile dropout_tile(Index stream, Index query_tile, Index key_tile) const;

 private:
  void make_tables() const;
  Index bucket_of(Index relative) const;
  double table_number(Index head, Index bucket) const;
  float diagonal_at(Index head, Index relative, Index bucket) const;
  double logit_factor() const { return has_softcap() ? 1 / softcap_ : log2_e; }

  const Attention* how_;
  const Plan* plan_;
  Lengths lengths_;
  double constant_scale_;
  double softcap_;
  Index offset_ = 0;  // index of relative position 0 in a diagonal
  Index diagonal_length_ = 0;
  Index heads_ = 0;
  mutable std::once_flag tables_made_;
  mutable Buffer<float> diagonals_;  // [heads][diagonal_length]
  mutable IndexedVector<std::int32_t> buckets_;
};

}  // namespace rapt::detail
