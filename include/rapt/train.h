#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "rapt/model.h"
#include "rapt/pretrained.h"
#include "rapt/tokenizer.h"

namespace rapt {

/// Adam with decoupled weight decay.
struct AdamW {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // of parameters that decay
};

/// The learning rate from the first step of a run to the last: up in a straight line, then down as
/// `decay` says.
struct Schedule {
  enum class Decay { constant, linear, cosine };
  Decay decay = Decay::cosine;
  double peak = 1e-3;
  double floor = 0;  // where the decay ends and stays
  Index warmup = 0;  // steps; the last of them is the first at the peak
  Index steps = 0;   // of the whole run; constant needs none
};

/// Of a step counted from 0. Throws std::invalid_argument if the schedule makes no sense.
RAPT_API double learning_rate_at(const Schedule& schedule, Index step);

/// What is learnt from the data of a path.
enum class Learning {
  next_token,    // files are documents
  masked_token,  // likewise; some tokens are hidden and have to be found
  pairs,         // lines are source, tab, target
};

struct DataOptions {
  std::string path = {};  // a file, a folder, or task:copy, task:recall, task:sort
  Learning learning = Learning::next_token;
  Index items = 8;     // per batch
  Index tokens = 256;  // per item; with pairs the longest source or target
  std::uint64_t seed = 1;

  Index evaluations = 16;          // at most so many batches; 0: nothing is held out
  double held_out = 0.05;          // part of the data that is kept for evaluation,
  std::string held_out_path = {};  // or a file or folder of its own
  bool separate_documents = true;  // packed documents do not see one another
  double masked = 0.15;            // of the tokens

  Index symbols = 127;  // of a task
  Index shortest = 0;   // copy, sort: symbols of the shortest list; 0: every list fills its item
  Index pairs = 8;      // recall: keys with values
  Index queries = 4;    // recall: keys that are asked for
};

/// How text becomes tokens.
struct TokenizerOptions {
  enum class Kind { bytes, bpe };
  Kind kind = Kind::bytes;
  Index entries = 4096;   // of bpe, which is learnt from the data
  std::string path = {};  // of a tokenizer.json; then nothing is learnt
};

struct TrainOptions {
  Index steps = 1000;
  Index accumulate = 1;  // batches whose gradients make one step
  double clip = 1;       // largest norm of the gradients; 0: any
  double label_smoothing = 0;
  AdamW optimizer = {};
  Schedule schedule = {};  // its steps are these steps
  Index log_every = 10;
  Index evaluate_every = 200;  // 0: only in the end
  Index save_every = 500;      // 0: only in the end
  Index keep = 2;              // checkpoints
  Index patience = 0;          // evaluations without a better loss before it stops; 0: never stops
  double until = 0;            // exact accuracy that is enough; 0: never stops for it
  std::uint64_t seed = 1;      // of dropout
};

/// Everything a run is told.
struct RunConfig {
  ModelConfig model = {};
  DataOptions data = {};
  TokenizerOptions tokenizer = {};
  TrainOptions train = {};
};

/// Reads a TOML file ("" for none) and then `sets`, each "section.key=value" in TOML's spelling.
/// Throws std::runtime_error naming the key that is unknown or out of its range.
RAPT_API RunConfig read_run_config(const std::string& path, std::span<const std::string> sets = {});
/// The whole config in TOML.
RAPT_API std::string to_toml(const RunConfig& config);

/// How a run stands; what metrics.jsonl says of a step.
struct TrainProgress {
  Index step = 0, steps = 0;
  double loss = 0;  // mean over the targets of the step
  double learning_rate = 0, gradient_norm = 0;
  double tokens_per_second = 0;
  double of_peak = 0;  // arithmetic of the model against the measured peak
  double seconds_left = 0;
};

struct Evaluation {
  Index step = 0;
  double loss = 0;
  double accuracy = 0;  // of targets
  double exact = 0;     // of items whose targets are all right
  std::vector<LayerStats> layers = {};
};

/// Whoever watches a run.
struct TrainEvents {
  std::function<void(const std::string& line)> notice = {};  // what the user should know
  std::function<void(const TrainProgress&)> progress = {};
  std::function<void(const Evaluation&)> evaluation = {};
  /// Asked while data is read and a tokenizer learnt, where true ends the run and nothing has
  /// changed, and before every step and every batch of an evaluation, where it saves first.
  std::function<bool()> stop = {};
};

struct TrainResult {
  enum class End { steps, patience, accuracy, stopped };
  End end = End::steps;
  Index step = 0;   // where it ended
  Index taken = 0;  // steps of this call
  double loss = 0;  // of the last step
  std::optional<Evaluation> evaluation = {};
};

/// Training would write over what the folder holds: a run, or files that are not those of a run.
class RAPT_API FolderTaken : public std::invalid_argument {
 public:
  enum class By { run, other_files };
  FolderTaken(By by, const std::string& what) : std::invalid_argument(what), by_(by) {}
  By by() const { return by_; }

 private:
  By by_;
};

/// What to do with a folder that holds checkpoints already.
enum class OldRun {
  go_on,       // from the newest checkpoint
  refuse,      // FolderTaken
  start_over,  // they are removed, once it is certain that the new run can begin
};

/// Trains in a folder: config.toml, tokenizer.json, metrics.jsonl and checkpoints step-NNNNNN. A
/// run goes on from the newest checkpoint in the folder, with the same bits as if it had never
/// ended. Nothing in the folder changes before config, data and checkpoint have been found to fit.
///
/// A loss or gradient that is not finite ends it before the weights move: std::runtime_error names
/// the parameter, and the last good state is saved. What a callback throws ends it too, and is
/// thrown here once the steps taken so far are saved. A save that fails is a notice; the third in a
/// row, or the last of the run, is an error, and the checkpoints before it are whole.
///
/// Throws std::invalid_argument if the folder holds no run but files that a run would write over,
/// unless it starts over, and if a step would keep more than the memory of this machine.
RAPT_API TrainResult train(const RunConfig& config, const std::string& folder,
                           const TrainEvents& events = {}, const Context& context = {},
                           OldRun old_run = OldRun::go_on);

/// What a run's folder holds: the model at its newest checkpoint.
struct LoadedRun {
  RunConfig config;
  Transformer model;
  std::optional<Tokenizer> tokenizer;  // none: a task's numbers
  Index step = 0;
  std::vector<std::string> notices = {};
};
RAPT_API LoadedRun load_run(const std::string& folder);
/// The run as a model like any other, of family "rapt".
RAPT_API Pretrained as_pretrained(LoadedRun run);
/// Whether the folder is one that train writes.
RAPT_API bool is_run_folder(const std::string& path);

/// How a run in a folder stands, without its weights.
struct RunStatus {
  RunConfig config;
  std::optional<Tokenizer> tokenizer;
  std::optional<Index> saved;            // step of the newest checkpoint that is whole
  std::optional<TrainProgress> last;     // step and loss of the last line of metrics.jsonl
  std::optional<Evaluation> evaluation;  // the last one there, without its layers
  std::vector<std::string> notices;      // checkpoints that are damaged
};
RAPT_API RunStatus run_status(const std::string& folder);

}  // namespace rapt
