#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/attention.h"
#include "rapt/kv_cache.h"
#include "rapt/nn/functional.h"
#include "rapt/nn/reversible.h"
#include "rapt/rope.h"

namespace rapt {

/// What a Transformer is made of.
struct RAPT_API ModelConfig {
  enum class Kind { decoder, encoder, encoder_decoder };
  enum class Norm { layer, rms };
  enum class NormPosition {
    pre,   // x + f(norm(x)), and a norm after the last layer
    post,  // norm(x + f(x))
  };
  enum class Positions { none, learned, sinusoidal, rope, alibi, t5, axial };
  /// Which linear layers have biases: those of queries, keys and values, all of attention, or those
  /// of the feed-forward network.
  enum class Biases { none, all, qkv, attention, ffn };
  enum class SharedKeys { never, always, hashed };

  Kind kind = Kind::decoder;
  std::optional<Index> vocab_size = 258;  // none: vectors in, vectors out, without an embedding
  Index hidden_size = 256;                // values per token between layers
  Index layers = 4;                       // of the decoder, or of the only stack
  Index encoder_layers = 0;               // of an encoder-decoder's encoder
  Index heads = 4;
  std::optional<Index> kv_heads = {};           // none: as many as heads
  std::optional<Index> head_dim = {};           // none: hidden_size / heads
  std::optional<Index> intermediate_size = {};  // in the feed-forward network; none: 4 hidden_size
  Activation activation = Activation::gelu_tanh;
  bool gated = false;  // activation(gate) * up
  Biases biases = Biases::all;
  Norm norm = Norm::layer;
  NormPosition norm_position = NormPosition::pre;
  double norm_epsilon = 1e-5;
  bool qk_norm = false;           // RMS norm of every query and key
  bool embedding_norm = false;    // of the input of the first layer
  bool final_norm = true;         // after the last layer; only with NormPosition::pre
  bool scale_embeddings = false;  // times sqrt(hidden_size)
  Index type_vocab_size = 0;      // token types, each a vector that is added to the embedding

  bool head = true;             // without one, the model gives rows of the last layer only
  bool tied_embeddings = true;  // the head is the embedding
  bool mlm_head = false;        // BERT's: a linear layer, the activation and a norm before the head
  bool head_bias = false;
  bool scale_head = false;  // the head reads rows times 1/sqrt(hidden_size)

  Positions positions = Positions::rope;
  Index max_positions = 1024;  // rows of learned positions; the other kinds have no limit
  Index position_offset = 0;   // row of the learned table for the first token
  /// Id of a token that takes no position, as in RoBERTa: it has the row before position_offset,
  /// and tokens after it do not count it.
  std::optional<Index> pad_token = {};
  double rope_base = 10000;
  RopeScaling rope_scaling = {};
  RopeLayout rope_layout = RopeLayout::half_split;
  Index t5_buckets = 32, t5_max_distance = 128;
  std::optional<Index> axial_rows = {}, axial_columns = {}, axial_row_dim = {};  // all, if axial

  /// Patterns of self-attention; layer i has the one at i modulo their number.
  std::vector<Pattern> patterns = {causal()};
  std::vector<Pattern> encoder_patterns = {full()};
  Scale scale = {};
  std::optional<double> softcap = {};
  /// Longformer's: global tokens have projections of their own, see all tokens and are seen by all.
  /// Patterns are windows that reach equally far on both sides.
  bool global_projections = false;
  SharedKeys shared_query_key = SharedKeys::never;  // in which layers queries are the keys
  bool reversible = false;  // two streams; backward recomputes the inputs of layers

  double dropout = 0;            // of what layers add, and of the embedding
  double attention_dropout = 0;  // of probabilities
  Type weight_type = Type::f32;  // what products read; bf16 is rounded from f32 at every step
  bool recompute = false;        // backward runs layers again instead of keeping their results
  std::uint64_t seed = 0;        // of the first weights

  // With the defaults filled in.
  Index kv_head_count() const { return kv_heads.value_or(heads); }
  Index dim() const { return head_dim ? *head_dim : hidden_size / heads; }
  Index ffn_dim() const { return intermediate_size ? *intermediate_size : 4 * hidden_size; }
  /// The pattern of self-attention in a layer of the decoder, or of the only stack.
  const Pattern& pattern(Index layer) const {
    return patterns[static_cast<std::size_t>(layer) % patterns.size()];
  }
  /// Throws std::invalid_argument if something makes no sense.
  void check() const;
};
template <>
inline constexpr EnumNames enum_names<ModelConfig::Kind>{"kind of model",
                                                         "decoder, encoder, encoder_decoder"};
template <>
inline constexpr EnumNames enum_names<ModelConfig::Norm>{"norm", "layer, rms"};
template <>
inline constexpr EnumNames enum_names<ModelConfig::NormPosition>{"norm position", "pre, post"};
template <>
inline constexpr EnumNames enum_names<ModelConfig::Positions>{
    "positions", "none, learned, sinusoidal, rope, alibi, t5, axial"};
template <>
inline constexpr EnumNames enum_names<ModelConfig::Biases>{"biases",
                                                           "none, all, qkv, attention, ffn"};
template <>
inline constexpr EnumNames enum_names<ModelConfig::SharedKeys>{"shared keys",
                                                               "never, always, hashed"};

/// Sequences of tokens, stored contiguously.
struct Tokens {
  std::vector<std::int32_t> ids;
  std::vector<Index> lengths;               // of the sequences; their sum is the number of ids
  std::vector<std::int32_t> type_ids = {};  // below type_vocab_size; empty: all are 0
  /// For models with global_projections: 1 for a global token; empty: there is none.
  std::vector<std::uint8_t> global_attention_mask = {};

  RAPT_API static Tokens one(std::vector<std::int32_t> ids);
};

/// What attention did in one layer, over all its heads and queries.
struct LayerStats {
  std::string layer;
  double entropy = 0;        // mean, nats
  double largest = 0;        // mean of the largest probability
  double largest_logit = 0;  // largest |logit| seen
  double saturated = 0;      // share of rows whose largest probability exceeds 0.99
};

/// One attention call of a pass, about to run.
struct AttentionCall {
  std::string layer;  // "decoder.layers.3.attention"
  View q, k, v;       // [items, heads, tokens, dim], valid during the call
  /// May be changed. If you change the pattern, reset the plan.
  Attention how;
};

/// Options of a forward pass besides its tokens.
struct PassOptions {
  DropoutKey dropout = {};  // of a tape that records
  std::vector<LayerStats>* stats = nullptr;
  /// Called before each self- and cross-attention call, layer by layer, except for calls over a
  /// cache and self-attention of models with global_projections. An exception ends the pass.
  std::function<void(AttentionCall& call)> attention = {};
};

class ModelCache;

/// Parameters and a config: tokens in, logits out, gradients back.
///
/// Several threads may call the const functions of one model at a time, each with a tape or cache
/// of its own, while no thread calls another function of it, changes a parameter or runs backward:
/// backward adds to the gradients of the parameters.
class RAPT_API Transformer {
 public:
  /// With initial weights, drawn from config.seed.
  explicit Transformer(const ModelConfig& config);
  /// Fills a parameter that has a name and no values yet: `value`, f32 of the given shape, or for a
  /// matrix bf16, f16 or `quantized`.
  using WeightSource = std::function<void(Parameter& parameter, const Shape& shape)>;
  /// With weights from a source; nothing is drawn.
  Transformer(const ModelConfig& config, const WeightSource& source);
  ~Transformer();
  Transformer(Transformer&&) noexcept;
  Transformer& operator=(Transformer&&) noexcept;

  const ModelConfig& config() const;
  /// In one fixed order, which initialization, optimizer and files follow.
  std::span<Parameter> parameters();
  std::span<const Parameter> parameters() const;
  /// Throws std::invalid_argument if there is none.
  Parameter& parameter(const std::string& name);
  /// Number of trainable values.
  Index count() const;
  /// Call it after values of parameters have changed: updates what products read.
  void refresh();
  /// For tapes that do not record: stores f32, f16 and bf16 matrices of linear layers, a tied
  /// embedding among them, in the order in which products read them. Calls with few tokens get
  /// faster, no bit changes, and their `value` is empty then. A call for another instruction set
  /// than the context's unpacks them each time. Call unpack() before training, or before reading
  /// values.
  void pack(const Context& context = {});
  void unpack();

  /// The last layer's output [tokens, hidden_size]. Sequences do not see one another.
  /// Encoder-decoders also get sources, one for each sequence. Results do not depend on the other
  /// sequences of the batch.
  Variable forward(Tape& tape, const Tokens& tokens, const PassOptions& options = {}) const;
  Variable forward(Tape& tape, const Tokens& tokens, const Tokens& sources,
                   const PassOptions& options = {}) const;
  /// Cross-entropy of the targets, one for each token; negative ones do not count.
  TokenLoss loss(Tape& tape, const Variable& hidden, std::span<const std::int32_t> targets,
                 const CrossEntropy& how = {}) const;
  /// [rows, vocab_size] of rows [rows, hidden_size].
  Tensor logits(const Tensor& hidden, const Context& context = {}) const;

  /// Appends new tokens to sequences of a cache and gives their output [tokens, hidden_size]: what
  /// forward would give them after all tokens before, except with hashed layers, whose earlier
  /// tokens stay as they were. Encoder-decoders need encode first. Results do not depend on the
  /// other sequences of the batch. Throws std::invalid_argument, and changes nothing, if a sequence
  /// is given twice.
  Tensor extend(const Tokens& tokens, ModelCache& cache, std::span<const Index> sequences,
                const Context& context = {}) const;
  /// Reads the sources of new sequences of a cache, each given once, before their first tokens.
  void encode(const Tokens& sources, ModelCache& cache, std::span<const Index> sequences,
              const Context& context = {}) const;

  struct Impl;

 private:
  friend struct detail::Access;
  friend class ModelCache;
  std::unique_ptr<Impl> impl_;
};

/// Why this model cannot keep keys and values while it generates, if it cannot. It then reads its
/// context again for every token.
RAPT_API std::optional<std::string> why_no_cache(const ModelConfig& config);
/// Whether its rope rotates all tokens again as a sequence grows: dynamic NTK and LongRoPE. A cache
/// then reads a sequence again whenever its angles have changed.
RAPT_API bool angles_follow_length(const ModelConfig& config);

/// Keys and values of all layers of a model, for sequences that grow. See KvCache. One thread at a
/// time: extend and encode change it. Threads that share a model need a cache each.
class RAPT_API ModelCache {
 public:
  struct Options {
    CacheType type = CacheType::f32;
    /// None: keep all tokens. Otherwise a token sees the window - 1 tokens before it and the first
    /// `pinned` ones, and the rest is forgotten; hashed layers do not release its memory.
    std::optional<Index> window = {};
    Index pinned = 0;
  };
  /// Throws std::invalid_argument for an encoder, and if why_no_cache gives a reason.
  ModelCache(const Transformer& model, const Options& options, const Context& context = {});
  ~ModelCache();
  ModelCache(ModelCache&&) noexcept;
  ModelCache& operator=(ModelCache&&) noexcept;

  Index add();
  Index fork(Index sequence);
  void remove(Index sequence);
  void truncate(Index sequence, Index tokens);
  Index tokens(Index sequence) const;
  Index bytes() const;
  const Options& options() const;

  struct Impl;

 private:
  friend struct detail::Access;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rapt
