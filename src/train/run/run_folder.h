#pragma once

#include "rapt/models/train.h"
#include "train/data/data.h"
#include "train/optimizer.h"
#include "train/run/checkpoint_store.h"

namespace rapt::detail {

/// What a run remembers besides weights and moments.
struct RunState {
  double best_loss = 0;
  Index waits = 0;
  bool evaluated = false;
  bool pending = false;  // an evaluation that is due at this step was cut short
  // Where the numbers come from; empty in checkpoints of versions that did not say.
  std::string isa = {}, version = {};
  Index numerics = 0;          // numerics_revision; 0 in checkpoints that do not say
  std::string tokenizer = {};  // hash of tokenizer.json
};

/// A run that may begin, or resume.
struct PreparedRun {
  RunConfig config;                    // with the vocab_size of the data
  std::optional<Tokenizer> tokenizer;  // of text
  bool resumes = false;
};
/// Looks at the folder and changes nothing. Throws std::runtime_error if a run that resumes has
/// another model or other data, and FolderNotEmpty if there is one and there must not be.
PreparedRun prepare_run(const RunConfig& config, const std::string& folder,
                        const CheckpointStore& store, ExistingRun existing_run,
                        const CancelCheck& cancel_check = {});
/// config.toml and tokenizer.json of a run that begins or resumes.
void write_run(const PreparedRun& run, const std::string& folder);
/// The tokenizer of the folder, if its data is text.
std::optional<Tokenizer> tokenizer_of(const RunConfig& config, const std::string& folder);
/// The hash of tokenizer.json; empty if the data is no text.
std::string tokenizer_hash(const RunConfig& config, const std::string& folder);
/// Throws std::runtime_error if tokenizer.json is another than when the step was saved.
void check_tokenizer(const std::string& saved, Index step, const std::string& hash,
                     const std::string& folder);
/// Why a run that resumes may have other bits than one that was never interrupted; empty: nothing
/// is known that would change them.
std::string bits_may_differ(const RunState& saved, const RunState& now);

void save_checkpoint(CheckpointStore& store, Index step, const RunConfig& config, const Data& data,
                     const Transformer& model, const Optimizer& optimizer, const RunState& state);
/// What a checkpoint remembers. Throws std::runtime_error if it is not that of a run.
RunState state_of(const Checkpoint& checkpoint);
/// Puts a checkpoint back. Throws std::runtime_error if it belongs to another model or other data.
void restore(Checkpoint& checkpoint, const RunConfig& config, const Data& data, Transformer& model,
             Optimizer& optimizer);

}  // namespace rapt::detail
