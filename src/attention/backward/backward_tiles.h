#pragma once

#include "attention/backward/backward.h"
#include "attention/backward/key_group_worker.h"
#include "attention/backward/shared_sums.h"

namespace rapt::detail {

/// Backward over the key groups of a call, products multiplying numbers of type T. A part of a call
/// runs once for each range of heads; sums of the score's tables are over all runs.
template <class T>
class BackwardTiles final : public BackwardPass {
 public:
  explicit BackwardTiles(const Call& call);

  /// Every key group of the heads, each by one worker at a time.
  void run(const BackwardInput& input, const GradientViews& operands) override;
  std::span<const ScoreGradients> score_gradients() const override { return score_; }
  RelativeSums& relative_keys() override { return relative_keys_; }
  RelativeSums& relative_values() override { return relative_values_; }
  Index group_tiles() const override { return groups_.tiles(); }

 private:
  /// A key group of a key head.
  struct KeyGroup {
    Index batch_head, number;
  };
  KeyGroup group_of_task(Index task, const HeadRange& heads) const;
  void run_group(const KeyGroup& group, Index task, KeyGroupWorker<T>& worker,
                 const GradientViews& operands);
  void abort(const std::exception_ptr& why);

  const Call& call_;
  KeyGroups groups_;
  QuerySums queries_;
  RelativeSums relative_keys_, relative_values_;
  IndexedVector<ScoreGradients> score_;  // [batch * kv_heads][groups]
  Index tasks_done_ = 0;                 // in earlier runs
};

/// Of all key groups, in the order of heads and groups: the same bits for any number of threads.
ScoreSums join_score_gradients(const Call& call, std::span<const ScoreGradients> parts);

}  // namespace rapt::detail
