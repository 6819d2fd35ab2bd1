#pragma once

#include "rapt/train.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/optimizer.h"

namespace rapt {

/// What a run remembers beside weights and moments.
struct RunState {
  double best_loss = 0;
  Index waits = 0;
  bool evaluated = false;
};

/// The config of a run in this folder: a vocabulary of 0 is that of the data. A new folder gets
/// config.toml and, for text, tokenizer.json. Throws std::runtime_error if the folder holds a run
/// with another model or other data.
RunConfig completed(const RunConfig& config, const std::string& folder);
/// The tokenizer of the folder, if its data is text.
std::optional<Tokenizer> tokenizer_of(const RunConfig& config, const std::string& folder);
std::unique_ptr<const Data> open_run_data(const RunConfig& config, const std::string& folder);

void save_checkpoint(CheckpointStore& store, Index step, const RunConfig& config, const Data& data,
                     const Transformer& model, const Optimizer& optimizer, const RunState& state);
/// Puts a checkpoint back. Throws std::runtime_error if it belongs to another model or other data.
RunState restore(Checkpoint& checkpoint, const RunConfig& config, const Data& data,
                 Transformer& model, Optimizer& optimizer);

}  // namespace rapt
