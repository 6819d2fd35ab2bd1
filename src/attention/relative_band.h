#pragma once

#include "attention/careful.h"

namespace rapt {

/// The gradient of the relative keys, of one task: in f64, with f32 sums on top that are moved down
/// now and then. Only tiles that the task meets cost anything.
class RelativeGradient {
 public:
  explicit RelativeGradient(const Call& call);

  void clear();
  /// f32 [64][dim in whole vectors] of one table tile, to be added to.
  float* tile_sums(Index table_tile);
  void flush();
  /// What was flushed, added to [count][64][dim in whole vectors].
  void add_to(double* sums) const;

 private:
  enum class State : std::uint8_t { unused, recent, flushed };
  const Call& call_;
  Index numbers_;  // per tile
  Buffer<float> recent_;
  Buffer<double> wide_;
  Buffer<State> states_;
};

/// Gradients of q · relative key for a tile of queries that passes key tiles in ascending order.
/// Two table tiles are open at a time; what slides out is multiplied into dq and the table's
/// gradient.
class RelativeBandGradient {
 public:
  explicit RelativeBandGradient(const Call& call);

  /// What the products of one query tile read and add to.
  struct Queries {
    RightRows rows;
    Index count;
    float* dqueries;  // [64][dim in whole vectors]
  };

  /// Takes the gradients of scale * q·k of one tile of pairs, zero where the mask hides.
  void add(const float* dlogits, const TileMask& mask, Index distance, const Queries& queries,
           RelativeGradient& gradient);
  /// Multiplies what is still open.
  void finish(const Queries& queries, RelativeGradient& gradient);

 private:
  static constexpr Index none = -1;
  /// One open table tile: [64 queries][64 positions].
  struct Half {
    Index table_tile = none;
    Buffer<float> sums;
    Buffer<std::uint64_t> seen;  // which of them a visible pair touched
  };

  void slide(Index lower, Index upper, const Queries& queries, RelativeGradient& gradient);
  void multiply(Half& half, const Queries& queries, RelativeGradient& gradient);
  static void open(Half& half, Index table_tile);

  const Call& call_;
  Half lower_, upper_;
};

}  // namespace rapt
