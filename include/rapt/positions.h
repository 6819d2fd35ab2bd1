#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rapt/tensor.h"

namespace rapt {

/// Positions of the tokens of a batch. It borrows them.
class RAPT_API Positions {
 public:
  enum class Kind { counted, counted_each, listed, grid };

  /// Token t of every item has position first + t.
  Positions(Index first = 0) : first_(first) {}
  /// Token t of item i has position firsts[i] + t: one batch of sequences of different lengths.
  static Positions from(std::span<const Index> firsts) { return {Kind::counted_each, firsts, 1}; }
  /// Token t of item i has position numbers[i * tokens + t]; with only as many numbers as tokens,
  /// numbers[t] in every item.
  static Positions list(std::span<const Index> numbers) { return {Kind::listed, numbers, 1}; }
  /// On axis a (time, height, width, say) token t of item i has position numbers[(a * batch + i) *
  /// tokens + t]; with axes * tokens numbers, numbers[a * tokens + t] in every item.
  static Positions grid(std::span<const Index> numbers, Index axes) {
    return {Kind::grid, numbers, axes};
  }

  Kind kind() const { return kind_; }
  Index first() const { return first_; }
  std::span<const Index> numbers() const { return numbers_; }
  Index axes() const { return axes_; }

 private:
  Positions(Kind kind, std::span<const Index> numbers, Index axes)
      : kind_(kind), numbers_(numbers), axes_(axes) {}

  Kind kind_ = Kind::counted;
  Index first_ = 0;
  std::span<const Index> numbers_;
  Index axes_ = 1;
};
template <>
inline constexpr EnumNames enum_names<Positions::Kind>{"positions",
                                                       "counted, counted_each, listed, grid"};

/// In what form a cache may hold keys whose positions matter, and whether tokens may get new
/// positions there (after some before them were released, for instance).
struct CacheRule {
  enum class Keys {
    plain,             // as projected: the position is part of the input, or is added at use
    rotated,           // rotated once, when they are appended
    rotated_if_fixed,  // rotated, if Rope::for_length is called once for all tokens to come
    unrotated,         // as projected; all are rotated again whenever the length changes
  };
  enum class Renumbering {
    free,         // only differences of positions matter
    by_rotation,  // Rope::shift rotates cached keys further
    by_rotating_again,
    impossible,  // what the model saw of a token contains its position
  };
  Keys keys = Keys::plain;
  Renumbering renumbering = Renumbering::free;
  bool operator==(const CacheRule&) const = default;
};
template <>
inline constexpr EnumNames enum_names<CacheRule::Keys>{
    "cached keys", "plain, rotated, rotated_if_fixed, unrotated"};
template <>
inline constexpr EnumNames enum_names<CacheRule::Renumbering>{
    "renumbering", "free, by_rotation, by_rotating_again, impossible"};

/// Positions added to the input: sinusoidal, learned, axial.
inline constexpr CacheRule absolute_cache_rule{CacheRule::Keys::plain,
                                               CacheRule::Renumbering::impossible};
/// Positions as a bias or key by distance: ALiBi, KERPLE, T5's table, Shaw's relative keys.
inline constexpr CacheRule relative_cache_rule{CacheRule::Keys::plain,
                                               CacheRule::Renumbering::free};

/// Sines and cosines of position * frequency, f32-exact at any position.
struct Sinusoidal {
  enum class Layout {
    interleaved,  // sin, cos, sin, cos, ...; an odd dim ends with a sine
    halves,       // all sines, then all cosines; an odd dim has one sine more
  };
  enum class Frequencies {
    exclusive,  // base^(-2i / dim): the paper, Marian, Transformer-XL
    inclusive,  // base^(-i / (dim / 2 - 1)), down to 1 / base itself: tensor2tensor, fairseq. An
                // odd dim ends with a zero
  };
  Index dim = 512;
  double base = 10000;
  Layout layout = Layout::interleaved;
  Frequencies frequencies = Frequencies::exclusive;
};
template <>
inline constexpr EnumNames enum_names<Sinusoidal::Layout>{"sinusoidal layout",
                                                          "interleaved, halves"};
template <>
inline constexpr EnumNames enum_names<Sinusoidal::Frequencies>{"sinusoidal frequencies",
                                                               "exclusive, inclusive"};

/// One row for each position, [positions, dim]. Throws std::invalid_argument if dim or base make no
/// sense.
RAPT_API Tensor sinusoidal(const Sinusoidal& how, std::span<const Index> positions);
/// The rows of `tokens` positions from `first` on.
RAPT_API Tensor sinusoidal(const Sinusoidal& how, Index first, Index tokens);

/// Tokens of a batch to look positions up for.
struct TokenGrid {
  Index batch = 1;
  Index tokens = 0;
};

/// Rows of a learned table [rows, dim], that of token t being position(t) + offset: [batch, tokens,
/// dim]. The offset is 0 in GPT-2 and BERT, 2 in BART and OPT. Throws std::invalid_argument if a
/// row does not exist.
RAPT_API Tensor learned_positions(View table, TokenGrid grid, const Positions& positions = {},
                                  Index offset = 0);
/// The gradient of the table [rows, dim] for dout [batch, tokens, dim]; tokens that share a row add
/// up, in f64 and in their order.
RAPT_API Tensor learned_positions_backward(View dout, Index rows, const Positions& positions = {},
                                           Index offset = 0);
/// RoBERTa's rule: real tokens are counted from padding + 1 on, the others have position `padding`.
/// `real` has one entry per token of one item.
RAPT_API std::vector<Index> positions_of_real_tokens(std::span<const std::uint8_t> real,
                                                     Index padding);

/// Learned positions on a grid: the row table gives the first channels, the column table the rest.
struct Axial {
  enum class Order {
    row_major,     // position p is in row p / columns and column p % columns: Reformer
    column_major,  // in row p % rows and column p / rows
  };
  View rows;     // [rows, row_dim]
  View columns;  // [columns, column_dim]
  Order order = Order::row_major;

  Index positions() const { return rows.size(0) * columns.size(0); }
  Index dim() const { return rows.size(1) + columns.size(1); }
  /// Trainable elements: rows * row_dim + columns * column_dim.
  Index parameters() const { return rows.shape().elements() + columns.shape().elements(); }
};
template <>
inline constexpr EnumNames enum_names<Axial::Order>{"axial order", "row_major, column_major"};

struct AxialGradients {
  Tensor drows;     // [rows, row_dim]
  Tensor dcolumns;  // [columns, column_dim]
};

/// [batch, tokens, dim]. Throws std::invalid_argument if a position is outside the grid.
RAPT_API Tensor axial_positions(const Axial& axial, TokenGrid grid,
                                const Positions& positions = {});
RAPT_API AxialGradients axial_positions_backward(View dout, const Axial& axial,
                                                 const Positions& positions = {});

}  // namespace rapt
