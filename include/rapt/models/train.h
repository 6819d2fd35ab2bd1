#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "rapt/models/pretrained.h"
#include "rapt/models/tokenizer.h"
#include "rapt/models/transformer.h"

namespace rapt {

/// Adam with decoupled weight decay.
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // of parameters that decay
};

/// How the learning rate changes over a run: linearly up to its peak, then down as `decay` says.
struct Schedule {
  enum class Decay { constant, linear, cosine };
  Decay decay = Decay::cosine;
  double min_learning_rate = 0;  // where the decay ends
  Index warmup_steps = 0;        // the last of them is the first step at the peak
};
template <>
inline constexpr EnumNames enum_names<Schedule::Decay>{"decay", "constant, linear, cosine"};

/// What a model is trained to predict.
enum class Objective {
  next_token,    // files are documents
  masked_token,  // text, too; some tokens are masked and have to be found
  pairs,         // lines are source, tab, target
};
template <>
inline constexpr EnumNames enum_names<Objective>{"objective", "next_token, masked_token, pairs"};

struct DataOptions {
  std::string path = {};  // a file, a folder, or task:copy, task:recall, task:sort
  Objective objective = Objective::next_token;
  Index batch_size = 8;  // items
  Index tokens = 256;    // per item; with pairs the longest source or target
  std::uint64_t seed = 1;

  std::optional<Index> eval_batches = 16;     // at most; none: all data is trained on
  double eval_fraction = 0.05;                // part of the data that is kept for evaluation,
  std::optional<std::string> eval_path = {};  // or a file or folder of its own
  bool separate_documents = true;             // packed documents do not see one another
  double mask_probability = 0.15;

  Index symbols = 127;                 // of a task
  std::optional<Index> shortest = {};  // copy, sort: symbols of the shortest list; none: every list
                                       // fills its item
  Index pairs = 8;                     // recall: keys with values
  Index queries = 4;                   // recall: keys whose values the model must give
};

/// How text becomes tokens.
struct TokenizerOptions {
  enum class Kind { bytes, bpe };
  Kind kind = Kind::bytes;
  Index vocab_size = 4096;               // of bpe, which is trained on the data
  std::optional<std::string> path = {};  // a tokenizer.json to use instead
};
template <>
inline constexpr EnumNames enum_names<TokenizerOptions::Kind>{"kind of tokenizer", "bytes, bpe"};

struct TrainOptions {
  Index steps = 1000;
  double learning_rate = 1e-3;  // at its peak
  Schedule schedule = {};
  AdamW optimizer = {};
  Index accumulation_steps = 1;             // batches whose gradients make one step
  std::optional<double> max_grad_norm = 1;  // gradients with a larger norm are scaled down to it
  double label_smoothing = 0;
  Index log_every = 10;
  std::optional<Index> evaluate_every = 200;  // none: at the end only
  std::optional<Index> save_every = 500;      // none: at the end only
  Index keep_checkpoints = 2;
  std::optional<Index> patience = {};  // stop after so many evaluations without a better loss
  std::optional<double> target_accuracy = {};  // stop once so many items are exactly right
  std::uint64_t seed = 1;                      // of dropout
};

/// The learning rate of a step, counted from 0. Throws std::invalid_argument if the schedule makes
/// no sense.
RAPT_API double learning_rate_at(const TrainOptions& options, Index step);

/// Everything that describes a run.
struct RunConfig {
  ModelConfig model = {.vocab_size = std::nullopt};  // the data's unless it is given
  DataOptions data = {};
  TokenizerOptions tokenizer = {};
  TrainOptions train = {};
};

/// Reads a TOML file, if there is one, and then `sets`, each "section.key=value" in TOML's
/// spelling. A number that may be none is none if it is "none". Throws std::runtime_error naming
/// the key that is unknown, has another name now or is out of its range.
RAPT_API RunConfig read_run_config(const std::optional<std::string>& path,
                                   std::span<const std::string> sets = {});
/// The whole config in TOML.
RAPT_API std::string to_toml(const RunConfig& config);

/// One step of a run, as metrics.jsonl records it.
struct TrainProgress {
  Index step = 0, steps = 0;
  double loss = 0;  // mean over the targets of the step
  double learning_rate = 0, gradient_norm = 0;
  double tokens_per_second = 0;
  double of_peak = 0;  // flops of the model as a fraction of the measured peak
  double seconds_left = 0;
};

struct Evaluation {
  Index step = 0;
  double loss = 0;
  double accuracy = 0;  // of targets
  double exact = 0;     // of items whose targets are all right
  std::vector<LayerStats> layers = {};
};

/// Called while a run is under way.
struct TrainEvents {
  std::function<void(const std::string& line)> notice = {};  // a line for the user to read
  std::function<void(const TrainProgress&)> progress = {};
  std::function<void(const Evaluation&)> evaluation = {};
  /// True ends the run. Asked while data is read and a tokenizer trained, when nothing has changed
  /// yet, and before every step and every batch of an evaluation; the run is saved first then.
  std::function<bool()> stop = {};
};

struct TrainResult {
  enum class Finish { steps, patience, accuracy, stopped };
  Finish finish_reason = Finish::steps;
  Index step = 0;         // the last one of the run
  Index steps_taken = 0;  // by this call
  double loss = 0;        // of the last step
  std::optional<Evaluation> evaluation = {};
};
template <>
inline constexpr EnumNames enum_names<TrainResult::Finish>{"finish reason",
                                                           "steps, patience, accuracy, stopped"};

/// Training would overwrite what the folder holds: a run, or files that are not a run's.
class RAPT_API FolderNotEmpty : public std::invalid_argument {
 public:
  enum class Holds { run, other_files };
  FolderNotEmpty(Holds holds, const std::string& what)
      : std::invalid_argument(what), holds_(holds) {}
  Holds holds() const { return holds_; }

 private:
  Holds holds_;
};
template <>
inline constexpr EnumNames enum_names<FolderNotEmpty::Holds>{"what a folder holds",
                                                             "run, other_files"};

/// What to do with a folder that holds checkpoints already.
enum class ExistingRun {
  resume,     // from the newest checkpoint
  refuse,     // with FolderNotEmpty
  overwrite,  // remove them, once it is certain that the new run can begin
};
template <>
inline constexpr EnumNames enum_names<ExistingRun>{"existing run", "resume, refuse, overwrite"};

/// Trains in a folder: config.toml, tokenizer.json, metrics.jsonl and checkpoints step-NNNNNN. A
/// run that resumes from the newest checkpoint ends with the same bits as one that was never
/// interrupted. Nothing in the folder changes before config, data and checkpoint have been checked.
///
/// A loss or gradient that is not finite ends the run before the weights change:
/// std::runtime_error names the parameter, and the last good state is saved. An exception from a
/// callback ends it too, and is rethrown once the steps so far are saved. A save that fails is a
/// notice; the third in a row, or the last of the run, is an error, and earlier checkpoints stay
/// whole.
///
/// Throws std::invalid_argument if the folder holds no run but files that a run would overwrite,
/// unless existing_run is overwrite, and if a step would need more than the memory of this machine.
RAPT_API TrainResult train(const RunConfig& config, const std::string& folder,
                           ExistingRun existing_run = ExistingRun::resume,
                           const TrainEvents& events = {}, const Context& context = {});

/// What a run's folder holds: the model at its newest checkpoint.
struct LoadedRun {
  RunConfig config;
  Transformer model;
  std::optional<Tokenizer> tokenizer;  // none: a task's numbers
  Index step = 0;
  std::vector<std::string> warnings = {};  // checkpoints that are damaged
};
RAPT_API LoadedRun load_run(const std::string& folder);
/// The run as a pretrained model, of family "rapt".
RAPT_API Pretrained as_pretrained(LoadedRun run);
/// Whether the folder is one that train has written.
RAPT_API bool is_run_folder(const std::string& path);

/// A run in a folder without its weights.
struct RunStatus {
  RunConfig config;
  std::optional<Tokenizer> tokenizer;
  std::optional<Index> saved;            // step of the newest checkpoint that is whole
  std::optional<TrainProgress> last;     // step and loss of the last line of metrics.jsonl
  std::optional<Evaluation> evaluation;  // the last one there, without its layers
  std::vector<std::string> warnings;     // checkpoints that are damaged
};
RAPT_API RunStatus run_status(const std::string& folder);

}  // namespace rapt
