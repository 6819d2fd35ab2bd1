#pragma once

#include <functional>
#include <optional>

#include "rapt/lsh.h"
#include "rapt/models/heads.h"

namespace rapt::detail {

/// A model and what it reads.
struct ModelRun {
  Transformer& model;
  const Tokens& tokens;
  const Tokens& sources;
  const Context& context;
};

/// The result of a pass.
struct PassResult {
  Tensor rows;                      // of the last layer
  std::optional<double> loss = {};  // nats per token; none: not a language model
};
PassResult run_pass(const ModelRun& run, const PassOptions& options);

/// The hashing that is tried.
Lsh tried_hashing();
/// Whether a layer's attention can be hashed as it is.
bool can_be_hashed(const AttentionCall& call);

/// Trials that make sense for a text of this length, with what the measured heads say about them;
/// to be run.
std::vector<PatternTrial> planned_trials(const HeadReport& report, const ModelConfig& config);
/// Runs one of them and compares it with the unchanged model.
void run_trial(const ModelRun& run, const HeadReport& report, const PassResult& before,
               PatternTrial& trial);

/// "decoder.layers.3" of "decoder.layers.3.attention".
std::string layer_name(const AttentionCall& call);
/// Query-key pairs that a pattern allows.
double pairs_of(const Pattern& pattern, Index tokens);
/// The widest window that is tried, a power of two that leaves out a quarter of the text; none: the
/// text is too short.
std::optional<Index> widest_window(Index tokens);
/// The smallest power of two whose window, with the first tokens, keeps HeadReport::enough for
/// every head of the layer; none: no tried window does.
std::optional<Index> window_for(const HeadReport& report, Index layer);

}  // namespace rapt::detail
