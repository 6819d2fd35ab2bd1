#pragma once

#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "rapt/context.h"
#include "rapt/positions.h"

namespace rapt {

/// Which channels form pair i of the `rotated` ones.
enum class RopeLayout {
  half_split,   // i and i + rotated / 2: GPT-NeoX, and Llama, Mistral, Qwen, Gemma as on the Hub
  interleaved,  // 2i and 2i + 1: RoFormer, GPT-J, Meta's Llama files, GGUF's llama
};
template <>
inline constexpr EnumNames enum_names<RopeLayout>{"rope layout", "half_split, interleaved"};

// Scalings that extend a model beyond the `trained_tokens` it was first trained with.

/// All frequencies divided by the factor: positions are interpolated.
struct LinearRope {
  double factor = 1;
};
/// A larger base: the lowest frequency is divided by the factor, the highest stays.
struct NtkRope {
  double factor = 1;
};
/// The same with a factor that grows with the sequence; see Rope::for_length.
struct DynamicNtkRope {
  double factor = 1;
  Index trained_tokens = 2048;
};
/// Interpolates pairs that rotate fewer than `slow` times in the trained length, keeps those that
/// rotate more than `fast` times, and blends in between. Cosines and sines are multiplied by
/// `attention_factor`; without one it is 0.1 ln(factor) + 1, or the ratio of 0.1 mscale ln(factor)
/// + 1 to the same expression with `mscale_all_dim` if both are given.
struct YarnRope {
  double factor = 1;
  Index trained_tokens = 4096;
  double fast = 32, slow = 1;
  std::optional<double> mscale = {}, mscale_all_dim = {};
  bool truncate = true;  // the blend begins and ends at whole pairs
  std::optional<double> attention_factor = {};
};
/// Divides frequencies whose wavelength exceeds trained_tokens / low, keeps those whose wavelength
/// is below trained_tokens / high, and blends in between.
struct Llama3Rope {
  double factor = 8;
  Index trained_tokens = 8192;
  double low = 1, high = 4;
};
/// A divisor for every pair: `short_factors` up to the trained length, `long_factors` beyond; see
/// Rope::for_length. Cosines and sines are multiplied by `attention_factor`; without one it is
/// sqrt(1 + ln(factor) / ln(trained_tokens)).
struct LongRope {
  std::vector<double> short_factors = {}, long_factors = {};  // rotated / 2 each
  Index trained_tokens = 4096;
  double factor = 1;  // longest sequence / trained_tokens
  std::optional<double> attention_factor = {};
};

using RopeScaling = std::variant<std::monostate, LinearRope, NtkRope, DynamicNtkRope, YarnRope,
                                 Llama3Rope, LongRope>;

/// Pairs that follow the axes of Positions::grid, as in M-RoPE.
struct RopeSections {
  enum class Order {
    blocks,       // the pairs of one axis are neighbours: Qwen2-VL
    interleaved,  // axis i % axes, as long as that axis has pairs left, else axis 0: Qwen3-VL
    restarted,    // blocks, each with frequencies of its own from 1 on: axial RoPE
  };
  std::vector<Index> pairs = {};  // of each axis, rotated / 2 together; none: one axis
  Order order = Order::blocks;
};
template <>
inline constexpr EnumNames enum_names<RopeSections::Order>{"order of rope sections",
                                                           "blocks, interleaved, restarted"};

/// xPos: pair i of a query at position p is multiplied by zeta^((p - center) / scale_base), that of
/// a key divided by it, with zeta = (2i + 0.4 rotated) / (1.4 rotated): far keys count less.
struct XPos {
  double scale_base = 512;
  Index center = 0;  // cancels out; near the positions in use nothing overflows
};

struct RopeOptions {
  Index dim = 64;                     // channels of a head
  std::optional<Index> rotated = {};  // channels that rotate, from the first on; none: all
  bool proportional = false;  // `rotated` channels rotate as in a model that rotates all (Gemma 4):
                              // partners are dim / 2 apart, and the last pairs of dim do not rotate
  double base = 10000;        // frequencies are base^(-2i / rotated)
  RopeLayout layout = RopeLayout::half_split;
  RopeScaling scaling = {};
  RopeSections sections = {};
  std::optional<XPos> xpos = {};
};

/// Rotary positions: pairs of channels of queries and keys rotate by position * frequency, so that
/// their product depends on the distance alone.
///
/// Cosines and sines are computed in f64 and rounded once. Tables keep those of positions below
/// 2^20, are filled as positions are used, and are shared by copies. Any number of threads may use
/// one Rope at a time.
class RAPT_API Rope {
 public:
  /// Throws std::invalid_argument if an option makes no sense.
  explicit Rope(const RopeOptions& options);

  const RopeOptions& options() const;
  /// Radians per position, one for each pair.
  std::span<const double> frequencies() const;
  /// What cosines and sines are multiplied by: 1 except for YaRN and LongRoPE. Logits grow by its
  /// square.
  double attention_factor() const;
  /// In what form a cache may hold keys of this rope.
  CacheRule cache_rule() const;

  /// This rope for sequences of `tokens` tokens, prompt and all tokens to come. It differs from
  /// this one under DynamicNtkRope and LongRope only, which otherwise assume the trained length. If
  /// you cache rotated keys, call it once, for the longest sequence.
  Rope for_length(Index tokens) const;
  /// With xPos, queries and keys need a rope each; otherwise both are this rope.
  Rope for_queries() const;
  Rope for_keys() const;

  /// Rotates queries or keys [batch, heads, tokens, dim] in place. Throws std::invalid_argument,
  /// and writes nothing, if shapes or positions do not fit.
  void apply(AnyMutableView x, const Positions& positions = {}, const Context& context = {}) const;
  /// The same into other memory, of any type.
  void apply_into(AnyMutableView out, AnyView x, const Positions& positions = {},
                  const Context& context = {}) const;
  /// From gradients of the result of apply to gradients of its input, in place: rotated back and
  /// multiplied by the same factors.
  void apply_backward(AnyMutableView dx, const Positions& positions = {},
                      const Context& context = {}) const;
  void apply_backward_into(AnyMutableView dx, AnyView dout, const Positions& positions = {},
                           const Context& context = {}) const;
  /// Moves rotated keys by `distance` positions, in place; the attention factor is not applied
  /// again. Throws std::invalid_argument if cache_rule() does not allow it.
  void shift(AnyMutableView keys, Index distance, const Context& context = {}) const;

  struct Family;
  struct Impl;

 private:
  Rope(std::shared_ptr<Family> family, std::shared_ptr<const Impl> impl);

  std::shared_ptr<Family> family_;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace rapt
