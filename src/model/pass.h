#pragma once

#include "base/indexed_vector.h"
#include "model/model_cache.h"
#include "model/model_weights.h"
#include "model/sequence_layout.h"
#include "rapt/nn/attention.h"

namespace rapt::detail {

/// Input of a stack of layers: to which sequences its rows belong, and what they may attend to.
struct StackInput {
  const StackWeights* weights;
  std::shared_ptr<const SequenceLayout> layout;
  std::vector<Rope> ropes = {};  // one for all sequences or one for each; none: nothing is rotated
  Variable sources = {};         // of cross-attention; empty: none
  std::shared_ptr<const SequenceLayout> source_layout = nullptr;
  Index first_layer = 0;                  // counted over all stacks, for dropout
  std::vector<std::uint8_t> global = {};  // of Longformer's tokens; empty: none is

  const LayerWeights& layer(Index index) const { return weights->layers[index]; }
};

/// Keys and values that a pass continues, one sequence of the cache for each of its own.
struct CacheUse {
  ModelCache* cache = nullptr;
  std::span<const Index> sequences = {};
};

/// One pass of tokens through a model. What it put on a tape keeps it alive.
class Pass : public std::enable_shared_from_this<Pass> {
 public:
  Pass(const ModelConfig& config, ModelWeights& weights, const PassOptions& options,
       const CacheUse& use = {});
  /// Dropout happens only then, on every tape.
  void train() { trains_ = true; }

  /// Whose embedding it is: a layer of its own for dropout.
  enum Stream : Index { stream_sources = -2, stream_tokens = -1 };
  /// [rows, hidden_size]: the input of the first layer.
  Variable embed(Tape& tape, const Tokens& tokens, const SequenceLayout& layout,
                 Stream stream = stream_tokens);
  /// What the last layer makes of it.
  Variable stack(Tape& tape, Variable x, const StackInput& in);
  /// Puts the keys and values of sources into the cache, for every layer.
  void keep_sources(Tape& tape, const Variable& read, const SequenceLayout& layout);

 private:
  /// Where inside a layer something is dropped.
  enum Site : Index {
    site_probabilities,
    site_attention,
    site_cross_probabilities,
    site_cross,
    site_ffn,
    site_embedding
  };
  struct LayerPlace {
    Index layer;  // of its stack
    DropoutKey dropout;
    /// The layer's hashed order of every sequence that is sorted on its own: forward fills it,
    /// backward uses it. Null: not needed.
    std::vector<std::shared_ptr<const LshOrder>>* orders = nullptr;
  };
  using Part = std::function<Variable(const Variable&)>;

  LayerPlace place(const StackInput& in, Index index) const;
  Variable layers(Tape& tape, Variable x, const StackInput& in);
  Variable layer(Tape& tape, Variable x, const StackInput& in, Index index);
  Variable recomputed(Tape& tape, const Variable& x, const StackInput& in, Index index);
  Variable reversible(Tape& tape, const Variable& x, const StackInput& in);
  Residual reversible_part(Index site, const StackInput& in, Index index, const Context& context);

  // Parts of a layer.
  Variable attended(Tape& tape, const Variable& x, const StackInput& in, const LayerPlace& at);
  Variable crossed(Tape& tape, const Variable& x, const StackInput& in, const LayerPlace& at);
  Variable transformed(Tape& tape, const Variable& x, const StackInput& in, const LayerPlace& at);
  Variable residual(Tape& tape, const Variable& x, const NormWeights& norm, const Part& part,
                    const DropoutKey& key);
  Variable norm(Tape& tape, const Variable& x, const NormWeights& weights);
  Variable linear(Tape& tape, const Variable& x, const LinearWeights& weights);
  Variable drop(Tape& tape, Variable x, const DropoutKey& key);

  // Positions.
  Index first_position(Index sequence) const;
  std::vector<Index> positions_of(const SequenceLayout& layout) const;
  Variable with_types(Tape& tape, Variable x, const Tokens& tokens);
  Variable with_positions(Tape& tape, Variable x, const Tokens& tokens,
                          const SequenceLayout& layout);
  std::vector<std::int32_t> learned_rows(const Tokens& tokens, const SequenceLayout& layout) const;
  Variable axial_rows(Tape& tape, const std::vector<Index>& positions);

  // Attention.
  struct Heads {
    HeadColumns q, k, v;
  };
  Heads heads_of(Tape& tape, Variable qkv, const StackInput& in, const LayerPlace& at);
  Variable rotated(Tape& tape, Variable x, const StackInput& in, Index heads) const;
  Heads source_heads(Tape& tape, const Variable& read, const AttentionWeights& weights);
  Attention score(const StackInput& in, const LayerPlace& at) const;
  /// Attention over the rows of the pass themselves.
  Variable over_rows(Tape& tape, const Heads& heads, const StackInput& in, const LayerPlace& at);
  Variable over_longformer_rows(Tape& tape, const Variable& x, const Variable& qkv,
                                const StackInput& in, const LayerPlace& at);
  Variable over_hashed_rows(Tape& tape, const Heads& heads, const StackInput& in,
                            const LayerPlace& at);
  std::vector<SequenceCall> calls_of(const Attention& how, const Pattern& pattern,
                                     const std::vector<SequenceRun>& runs);
  AttentionExtras extras(const StackInput& in, const LayerPlace& at, const char* part) const;
  /// The score of cross-attention.
  Attention cross_score(const LayerPlace& at) const;
  void append(KvCache& cache, const HeadColumns& k, const HeadColumns& v,
              const SequenceLayout& layout) const;
  /// Queries of every sequence over what a cache has of it.
  Variable over_cache(Tape& tape, const HeadColumns& q, const KvCache& cache, Attention how,
                      const SequenceLayout& layout) const;
  void show_call(const std::string& layer, AttentionExtras& extras) const;
  void keep_stats(const std::string& layer, const Attended& attended, Index& counted) const;

  const ModelConfig& config_;
  ModelWeights& weights_;
  PassOptions options_;
  CacheUse use_;
  IndexedVector<Index> firsts_;  // tokens that the cache knew of each sequence
  bool trains_ = false;
  PlanBook plans_;
};

}  // namespace rapt::detail
