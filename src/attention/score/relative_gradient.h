#pragma once

#include "attention/forward/nonfinite_products.h"
#include "attention/score/relative_tiles.h"
#include "base/buffer.h"

namespace rapt::detail {

/// The gradient of a table of relative keys or values, of one task: in f64, with f32 sums on top
/// that are moved down now and then. Only tiles that the task meets cost anything.
class RelativeGradient {
 public:
  /// `table` is null if there is none.
  RelativeGradient(const RelativeTiles* table, const Kernels& kernels);

  void clear();
  /// f32 [64][width of the table] of one table tile, to be added to.
  float* tile_sums(Index table_tile);
  void flush();
  /// What was flushed, added to [count][64][width of the table].
  void add_to(double* sums) const;

 private:
  enum class State : std::uint8_t { unused, recent, flushed };
  const Kernels& kernels_;
  Index numbers_;  // per tile
  Buffer<float> recent_;
  Buffer<double> wide_;
  Buffer<State> states_;
};

/// Sums over the (query, key) pairs of a relative position, for a tile of queries that visits key
/// tiles in ascending order. Two table tiles are summed at a time; a tile that is complete is
/// multiplied with rows of the queries into the table's gradient and, for relative keys, with the
/// table into dq.
class RelativeBandGradient {
 public:
  RelativeBandGradient(const RelativeTiles* table, const Kernels& kernels);

  /// What the products of one query tile read and add to.
  struct Queries {
    RightRows<float> rows;  // q, or dout for relative values
    Index count;
    float* dqueries;  // [64][dim in whole vectors], null for relative values
  };

  /// Adds one number for every query and key of a tile, zero where the mask hides: the gradients of
  /// scale * q·k, or the probabilities for relative values.
  void add(const float* scores, const TileMask& mask, Index distance, const Queries& queries,
           RelativeGradient& gradient);
  /// Multiplies the sums that are left.
  void finish(const Queries& queries, RelativeGradient& gradient);

 private:
  static constexpr Index none = -1;
  /// The sums of one table tile: [64 queries][64 positions].
  struct Half {
    Index table_tile = none;
    Buffer<float> sums;
    Buffer<std::uint64_t> seen;  // which of them a visible key touched
  };

  void slide(Index lower, Index upper, const Queries& queries, RelativeGradient& gradient);
  void multiply(Half& half, const Queries& queries, RelativeGradient& gradient);
  static void begin(Half& half, Index table_tile);

  const RelativeTiles* table_;
  const Kernels& kernels_;
  Half lower_, upper_;
};

}  // namespace rapt::detail
