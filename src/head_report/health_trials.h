#pragma once

#include <functional>
#include <optional>

#include "rapt/health.h"
#include "rapt/lsh.h"

namespace rapt::lab {

/// A text on its way through a model.
struct HealthRun {
  Transformer& model;
  const Tokens& tokens;
  const Tokens& sources;
  const Context& context;
};

/// What came out of a pass.
struct PassResult {
  Tensor rows;  // of the last layer
  double loss;  // nats a token; NaN: the model does not go on from texts
};
PassResult run_pass(const HealthRun& run, const PassOptions& options);

/// How hashing is tried.
Lsh tried_hashing();
/// Whether a layer's attention can be hashed as it is.
bool can_be_hashed(const AttentionCall& call);

/// The patterns that are worth a trial on a text of this length, with what the measured heads say
/// about them; to be run.
std::vector<PatternTrial> planned_trials(const ModelHealth& health, const ModelConfig& config);
/// Runs one of them against what the untouched model gave.
void run_trial(const HealthRun& run, const ModelHealth& health, const PassResult& before,
               PatternTrial& trial);

/// "decoder.layers.3" of "decoder.layers.3.attention".
std::string layer_name(const AttentionCall& call);
/// Pairs that a pattern lets meet.
double pairs_of(const Pattern& pattern, Index tokens);
/// The widest window that is tried: a power of two that leaves a quarter of the text out; 0: none.
Index widest_window(Index tokens);
/// Smallest power of two whose window, the first tokens besides, leaves every head of the layer
/// enough; none: none of those that are tried does.
std::optional<Index> window_for(const ModelHealth& health, Index layer);

}  // namespace rapt::lab
