#pragma once

#include "base/torch_random.h"
#include "rapt/lsh.h"
#include "rapt/reformer_local.h"
#include "support/truth/definition.h"

// Reformer as Transformers has it, at the size of its tests: everything but attention in doubles.
namespace rapt::test {
using namespace detail;

/// y = x W', W [out, in]; and its gradients.
struct Dense {
  Doubles weight = {}, bias = {}, dweight = {};
  std::size_t in = 0;

  Doubles operator()(const Doubles& x) const;
  /// Adds to dweight; the gradient of x comes back.
  Doubles backward(const Doubles& dy, const Doubles& x);
};

/// Rows of `width` numbers with mean 0 and variance 1.
Doubles normed(const Doubles& x, std::size_t width);
Doubles normed_backward(const Doubles& dy, const Doubles& x, std::size_t width);

/// [tokens, 2 * 8] as [1, 2, tokens, 8].
Tensor split_heads(const Doubles& x);

/// What the layers of a model have in common.
struct ReformerConfig {
  Lsh lsh{.chunk = 4, .rounds = 4, .buckets = {2}};
  ReformerLocal local{.chunk = 4, .empty_rows = ReformerLocal::EmptyRows::sum};
  bool causal = true;
  Context context = {};
};

/// One reversible layer on one sequence: 16 numbers per token, 2 heads of 8, 32 inside.
class ReformerLayer {
 public:
  enum class Kind { lsh, local };
  static constexpr Index hidden = 16, heads = 2, dim = 8;

  /// torch's default weights; then those of Transformers' initialisation.
  ReformerLayer(Kind kind, TorchRandom& random);
  void draw(TorchRandom& random);

  struct Streams {
    Doubles x1, x2;
  };
  /// `real`: the attention mask, or empty.
  Streams forward(const Streams& x, const ReformerConfig& config,
                  const std::vector<std::uint8_t>& real = {});
  /// From the gradients of what came out to those of what went in, from the outputs alone: the
  /// streams are those that forward got, computed back.
  Streams backward(const Streams& dy, Streams& y, const ReformerConfig& config);

  Dense q, k, v, o, inner, outer;  // q are queries and keys of lsh

 private:
  Doubles attention(const Doubles& x, const ReformerConfig& config) const;
  Doubles attention_backward(const Doubles& dy, const Doubles& x, const ReformerConfig& config);
  Doubles feed_forward(const Doubles& x) const;
  Doubles feed_forward_backward(const Doubles& dy, const Doubles& x);
  Attention lsh_how(const ReformerConfig& config) const;
  ReformerLocal local_how(const ReformerConfig& config) const;

  Kind kind_;
  std::vector<std::uint8_t> real_;
};

/// The whole model, with a language modelling head if asked for.
class ReformerModel {
 public:
  using Kind = ReformerLayer::Kind;
  ReformerModel(const std::vector<Kind>& kinds, bool head);

  /// [tokens, 32] of one sequence.
  Doubles last_hidden(const std::vector<int>& ids, const ReformerConfig& config,
                      const std::vector<std::uint8_t>& real = {});
  Doubles logits(const std::vector<int>& ids, const ReformerConfig& config,
                 const std::vector<std::uint8_t>& real = {});
  /// Mean over sequences of the loss of every next token, and its gradient in the word embeddings.
  struct Loss {
    double value = 0;
    Doubles dwords;
  };
  Loss loss(const std::vector<std::vector<int>>& sequences, const ReformerConfig& config);

  static constexpr Index words = 320;
  Doubles word_table, axial_rows, axial_columns;  // [320, 16], [4, 8], [8, 8]
  std::vector<ReformerLayer> layers;
  Dense head;

 private:
  ReformerLayer::Streams run(const std::vector<int>& ids, const ReformerConfig& config,
                             const std::vector<std::uint8_t>& real);
};

}  // namespace rapt::test
