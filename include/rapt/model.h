#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/attention.h"
#include "rapt/cache.h"
#include "rapt/nn.h"
#include "rapt/reversible.h"
#include "rapt/rope.h"

namespace rapt {

/// What a Transformer is made of.
struct RAPT_API ModelConfig {
  enum class Kind { decoder, encoder, encoder_decoder };
  enum class Norm { layer, rms };
  enum class NormPlace {
    before,  // x + f(norm(x)), and a norm at the end
    after,   // norm(x + f(x))
  };
  enum class Positions { none, learned, sinusoidal, rope, alibi, t5, axial };
  /// Which linear layers have biases: those of queries, keys and values, all of attention, or those
  /// of the feed-forward network.
  enum class Biases { none, all, qkv, attention, ffn };
  enum class SharedKeys { never, always, hashed };

  Kind kind = Kind::decoder;
  Index vocabulary = 258;    // 0: vectors go in and come out, there is no embedding
  Index width = 256;         // of the stream of tokens
  Index layers = 4;          // of the decoder, or of the only stack
  Index encoder_layers = 0;  // of an encoder-decoder's encoder
  Index heads = 4;
  Index kv_heads = 0;  // 0: as many as heads
  Index head_dim = 0;  // 0: width / heads
  Index ffn = 0;       // width inside the feed-forward network; 0: 4 * width
  Activation activation = Activation::gelu_tanh;
  bool gated = false;  // activation(gate) * up
  Biases biases = Biases::all;
  Norm norm = Norm::layer;
  NormPlace norm_place = NormPlace::before;
  double epsilon = 1e-5;
  bool qk_norm = false;           // RMS norm of every query and key
  bool embedding_norm = false;    // of what goes into the first layer
  bool final_norm = true;         // after the last layer; only with NormPlace::before
  bool scaled_embedding = false;  // times sqrt(width)
  Index token_types = 0;          // a vector for each, added to the embedding; 0: there are none

  bool head = true;          // without one, rows of the last layer are all that comes out
  bool tied = true;          // the head is the embedding
  bool masked_head = false;  // BERT's: a linear layer, the activation and a norm stand before it
  bool head_bias = false;
  bool scaled_head = false;  // rows times 1/sqrt(width) go into it

  Positions positions = Positions::rope;
  Index max_tokens = 1024;   // learned positions are so many; others are not bound by it
  Index first_position = 0;  // row of the learned table where the first token stands
  /// Id of a token that takes no position, as in RoBERTa: it has the row before first_position, and
  /// tokens after it do not count it. -1: none.
  Index padding = -1;
  double rope_base = 10000;
  RopeScaling rope_scaling = {};
  RopeLayout rope_layout = RopeLayout::half_split;
  Index t5_buckets = 32, t5_max_distance = 128;
  Index axial_rows = 0, axial_columns = 0, axial_row_width = 0;

  /// Patterns of self-attention as text; layer i has the one at i modulo their number.
  std::vector<std::string> patterns = {"causal"};
  std::vector<std::string> encoder_patterns = {"full"};
  Scale scale = {};
  double softcap = 0;
  /// Longformer's: tokens that are global have projections of their own, and see and are seen by
  /// all. Patterns are windows, as wide on both sides.
  bool global_projections = false;
  SharedKeys shared_query_key = SharedKeys::never;  // queries are the keys: in which layers
  bool reversible = false;  // two streams; backward computes the layers' inputs back

  double dropout = 0;            // of what layers add, and of the embedding
  double attention_dropout = 0;  // of probabilities
  Type weights = Type::f32;      // what products read; bf16 is rounded from f32 at every step
  bool recompute = false;        // layers run again in backward instead of keeping what they made
  std::uint64_t seed = 0;        // of the first weights

  // With the defaults filled in.
  Index kv_count() const { return kv_heads == 0 ? heads : kv_heads; }
  Index dim() const { return head_dim == 0 ? width / heads : head_dim; }
  Index hidden() const { return ffn == 0 ? 4 * width : ffn; }
  /// Throws std::invalid_argument if something makes no sense.
  void check() const;
};

/// Sequences of tokens, one after the other.
struct Tokens {
  std::vector<std::int32_t> ids;
  std::vector<Index> lengths;            // of the sequences; together as many as ids
  std::vector<std::int32_t> types = {};  // of a model with token_types; empty: all are 0
  /// Of a model with global_projections: 1 for a token that is global; empty: none is.
  std::vector<std::uint8_t> global = {};

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
  View q, k, v;       // [items, heads, tokens, dim]; they last as long as the call
  /// What is changed here is what runs. Whoever changes the pattern takes the plan away.
  Attention how;
};

/// What a forward pass may be told beside its tokens.
struct PassOptions {
  DropoutKey dropout = {};  // what is dropped while the tape records
  std::vector<LayerStats>* stats = nullptr;
  /// Shown each self- and cross-attention call before it runs, layer by layer. Left out: calls over
  /// a cache, and all self-attention of models with global_projections. What it throws ends the
  /// pass.
  std::function<void(AttentionCall& call)> attention = {};
};

class ModelCache;

/// Parameters and a config: tokens in, numbers out, gradients back.
///
/// Several threads may call the const functions of one model at a time, each with a tape or cache
/// of its own, as long as none calls another function of it, changes a parameter or runs backward:
/// backward adds to the gradients of the parameters.
class RAPT_API Transformer {
 public:
  /// With its first weights, drawn from config.seed.
  explicit Transformer(const ModelConfig& config);
  /// Puts numbers into a parameter, which has a name and no numbers yet: `value`, f32 of the given
  /// shape, or for a matrix bf16, f16 or `quantized`.
  using WeightSource = std::function<void(Parameter& parameter, const Shape& shape)>;
  /// With weights from elsewhere; nothing is drawn.
  Transformer(const ModelConfig& config, const WeightSource& source);
  ~Transformer();
  Transformer(Transformer&&) noexcept;
  Transformer& operator=(Transformer&&) noexcept;

  const ModelConfig& config() const;
  /// In one fixed order: the table that initialisation, optimizer and files go by.
  std::span<Parameter> parameters();
  std::span<const Parameter> parameters() const;
  /// Throws std::invalid_argument if there is none.
  Parameter& parameter(const std::string& name);
  /// Numbers to learn.
  Index count() const;
  /// After values of parameters have changed: what products read follows.
  void refresh();
  /// For tapes that do not record: matrices of linear layers that are f32, f16 or bf16 are kept in
  /// the order in which products read them, a tied embedding among them, which makes few tokens
  /// faster and changes no bit; their `value` is empty then. A call for another instruction set
  /// than the context's unpacks them each time. unpack() before training, or before values are
  /// read.
  void pack(const Context& context = {});
  void unpack();

  /// The last layer's output [tokens, width]. Sequences do not see one another. Encoder-decoders
  /// also get what encode made of the sources, one for each sequence.
  /// A sequence has the same bits whatever others are beside it.
  Variable forward(Tape& tape, const Tokens& tokens, const PassOptions& options = {}) const;
  Variable forward(Tape& tape, const Tokens& tokens, const Tokens& sources,
                   const PassOptions& options = {}) const;
  /// Cross-entropy of the targets, one for each token, negative ones left out.
  TokenLoss loss(Tape& tape, const Variable& hidden, std::span<const std::int32_t> targets,
                 const CrossEntropy& how = {}) const;
  /// [rows, vocabulary] of rows [rows, width].
  Tensor logits(const Tensor& hidden, const Context& context = {}) const;

  /// The output of new tokens [tokens, width] of sequences that a cache knows, one of the cache for
  /// each; they are appended. What forward would give them behind all that came before, but with
  /// hashed layers, whose earlier tokens stay as they were. Encoder-decoders ask for encode first.
  /// A sequence has the same bits whatever others are beside it. Throws std::invalid_argument, and
  /// changes nothing, if a sequence is given twice.
  Tensor extend(const Tokens& tokens, ModelCache& cache, std::span<const Index> sequences,
                const Context& context = {}) const;
  /// Reads the sources of new sequences of a cache, each given once, before their first tokens.
  void encode(const Tokens& sources, ModelCache& cache, std::span<const Index> sequences,
              const Context& context = {}) const;

  struct Body;

 private:
  friend class ModelCache;
  std::unique_ptr<Body> body_;
};

/// "" if keys and values of this model can be kept while it writes; else why not. Such a model
/// reads its context anew for every token.
RAPT_API std::string why_no_cache(const ModelConfig& config);
/// Whether its rope turns all tokens anew as a sequence grows: dynamic NTK and LongRoPE. A cache
/// then reads a sequence anew, by itself, whenever its angles have changed.
RAPT_API bool angles_follow_length(const ModelConfig& config);

/// Keys and values of all layers of a model, for sequences that grow. See KvCache. One thread at a
/// time: extend and encode change it. Threads that share a model have a cache each.
class RAPT_API ModelCache {
 public:
  struct Options {
    CacheType type = CacheType::f32;
    /// 0: keep all. Otherwise a token sees the window - 1 tokens before it and the first `pinned`
    /// ones, and the rest is forgotten; hashed layers keep the memory.
    Index window = 0;
    Index pinned = 0;
  };
  /// Throws std::invalid_argument for an encoder, and where why_no_cache has a reason.
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

  struct Body;
  Body& body() { return *body_; }

 private:
  std::unique_ptr<Body> body_;
};

}  // namespace rapt
