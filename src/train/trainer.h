#pragma once

#include <memory>

#include "rapt/models/train.h"
#include "train/data/data.h"
#include "train/optimizer.h"
#include "train/run/checkpoint_store.h"
#include "train/run/metrics_file.h"
#include "train/run/run_folder.h"

namespace rapt::detail {

/// Thrown by the cancel check when the caller wants the run to end.
struct StopAsked {};

/// One run, from the newest checkpoint of its folder to its end.
class Trainer {
 public:
  /// The caller holds the lock of the folder.
  Trainer(const RunConfig& config, const std::string& folder, ExistingRun existing_run,
          const TrainEvents& events, const Context& context);

  TrainResult run();

 private:
  struct StepLoss {
    double total = 0;  // sum over the targets that count
    Index counted = 0;
    Index tokens = 0;
    double mean() const { return counted == 0 ? 0 : total / static_cast<double>(counted); }
  };

  void resume();
  void take_step();
  StepLoss gradients();
  void check_finite(double loss, const GradientNorm& norm);
  void report(const StepLoss& loss, double learning_rate, double norm, double seconds);
  Evaluation evaluate();
  /// Takes a step unless an evaluation of the last one is pending; false at the end of the run.
  bool advance();
  void save();
  void save_if_due(bool last);
  void save_before_error() noexcept;
  bool evaluation_due() const;
  /// Whether the run ends here, and why.
  bool ends(const Evaluation& evaluation);
  void notice(const std::string& line) const;
  void pass_warnings();

  CheckpointStore store_;
  const TrainEvents& events_;
  const CancelCheck cancel_check_;
  const PreparedRun prepared_;
  const RunConfig& config_;
  const Context context_;
  Transformer model_;
  std::unique_ptr<const Data> data_;
  Optimizer optimizer_;
  MetricsFile metrics_;
  Index step_ = 0;          // done so far
  Index saved_ = -1;        // the step of the newest checkpoint
  Index tried_ = -1;        // the step that was saved last, or failed to be
  Index failed_saves_ = 0;  // since the last that worked
  bool moving_ = false;     // weights are neither of this step nor of the next
  RunState origin_;         // what its checkpoints say of where they come from
  double best_loss_ = 0;    // of evaluations
  Index waits_ = 0;         // evaluations since then
  bool evaluated_ = false;
  bool pending_ = false;  // an evaluation of this step has not been made yet
  double peak_gflops_ = 0, flops_per_token_ = 0;
  TrainResult result_;
};

}  // namespace rapt::detail
