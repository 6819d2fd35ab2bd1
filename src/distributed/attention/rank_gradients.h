#pragma once

#include <optional>

#include "distributed/attention/rank_call.h"
#include "distributed/attention/tile_returns.h"

namespace rapt::detail {

/// The gradient of one operand on this rank: what it computed itself, and what others computed for
/// its tokens. Sums are f32 whatever the type.
class SummedGradient {
 public:
  /// `others_add`: whether anything will be added.
  SummedGradient(const AnyView& operand, bool others_add);

  /// Where this rank writes its own share.
  AnyMutableView own() { return wide_.empty() ? AnyMutableView(result_) : AnyMutableView(wide_); }
  /// `head` counts over the batch.
  void add(Index head, Index row, const float* numbers);
  Tensor finish();

 private:
  Tensor result_;
  Tensor wide_;  // empty: the result is f32, or nothing is added
};

struct RankGradients {
  SummedGradient dq, dk, dv;
  Tensor ddense;  // this rank's share; empty if it is not wanted
};

}  // namespace rapt::detail
