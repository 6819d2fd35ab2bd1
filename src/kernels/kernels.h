#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "rapt/tensor.h"

namespace rapt {

/// Queries and keys meet in square tiles of this size; a mask row of a tile is one 64-bit word.
inline constexpr Index tile = 64;
/// Rows that one micro-kernel call owns. Four keep the operand loads low on every register file.
inline constexpr Index strip = 4;
inline constexpr Index strips = tile / strip;
/// Relative positions that a tile of pairs spans, and one more.
inline constexpr Index band_width = 2 * tile;
/// Widest vector of any instruction set; buffers of "one vector per row" use it.
inline constexpr Index max_lanes = 16;

/// Values of two or four slots lie in one word of a bf16 or int8 tile; those slots are 16 apart.
inline constexpr Index word_gap = 16;
/// Values of a bf16 tile lie in 32 rows of pairs.
inline constexpr Index pair_rows = tile / 2;
constexpr Index first_slot_of_pair(Index row) {
  return row / word_gap * 2 * word_gap + row % word_gap;
}

/// Columns [begin, end) of a tile that a strip of rows touches, in multiples of the vector width.
struct Clip {
  Index begin = 0;
  Index end = 0;
};
using Clips = Clip[strips];
inline constexpr Clip whole_row{0, tile};

/// Largest dim of any operand.
inline constexpr Index max_dim = 512;

/// Rows of the caller's memory, `stride` numbers apart.
struct InputRows {
  const void* data;
  Type type;
  Index stride;
  Index count;
  /// Row i is row order[i] of the memory, or zeros if that is negative; null: rows lie in order.
  /// Only packing into f32 strips, panels and rows knows it.
  const std::int32_t* order = nullptr;
  /// Whether rows that lie behind these are to be asked for ahead: only where keys and values come
  /// from memory.
  bool ahead = false;
};

/// The exact running softmax of 64 query rows. Logits are in units of log2: p = exp2(z -
/// reference).
struct SoftmaxTile {
  float* reference;   // [64] p is relative to this; -inf until the row has seen a key
  float* lane_sums;   // [64][max_lanes] partial sums of p since the last flush
  double* sums;       // [64] sums up to the last flush
  float* out;         // [64][width] sum of p v since the last flush
  double* wide;       // [64][width] the same up to the last flush
  Index width;        // value_dim in whole vectors
  bool wide_used;     // false: `wide` and `sums` hold nothing yet
  float* shift;       // statistics only: [64] what logits are measured from, fixed at the first key
  float* lane_stats;  // statistics only: [stat_count][64][max_lanes] since the last flush
  double* stats;      // statistics only: [stat_count][64] up to the last flush
};

/// Sums that Stats are made of. `largest` is a maximum; `others*` leave each lane's largest out.
enum Stat {
  stat_largest,
  stat_others,
  stat_others2,
  stat_others3,
  stat_pz,
  stat_z,
  stat_z2,
  stat_seen,
  stat_distance,
  stat_count
};

/// What backward needs of 64 query rows.
struct GradientTile {
  const float* reference;  // [64] as forward left it, finite
  const float* delta;      // [64] sum(dout * out) / denominator
};

/// Decides which pairs of a tile dropout keeps.
struct DropTile {
  std::uint32_t key[2];     // the seed
  std::uint32_t stream;     // batch item and head
  std::uint32_t row;        // first query of the tile
  std::uint32_t column;     // first key of the tile, a multiple of 64
  std::uint64_t threshold;  // a pair is dropped when its 32 bits lie below
  float keep;               // factor of what is kept
};

/// Rows whose channels turn in pairs, each row by the angles of its own table row.
struct RotaryRows {
  const void* from;
  Type from_type;
  Index from_stride;  // in numbers, between rows
  void* to;           // may be `from`, with the same type and stride
  Type to_type;
  Index to_stride;
  Index count, dim;
  Index pairs;                // channels behind them are copied
  const float* const* turns;  // of row r: turns[r * turn_step], all cosines and then all sines
  Index turn_step;            // 0: all rows turn alike
  bool back;                  // by the negative angles
};

/// Keys or values of a cached tile: f32 as panels or rows, bf16 in pairs, int8 in quads.
struct ThinTile {
  const void* numbers;
  const float* scales;  // [64] of int8, else null
  Index width;          // of a stored row of values
  Index slots;          // the first ones that count, of keys in whole vectors
  const void* ahead;    // what will be read after this tile, for prefetching; null: nothing
};

/// Rows of one key head, `stride` numbers apart. With scales they are int8, and row i stands for
/// itself times scales[i]; scales are read in whole vectors.
struct FewRows {
  const void* data;
  Type type;
  Index stride;
  const float* scales;  // null: numbers of `type`
};

/// One query of each head over at most 64 keys. Steps are bytes from one head to the next; scales
/// lie as far apart as their rows.
struct FewKeys {
  const void* q;
  Type q_type;
  Index q_step;
  FewRows keys, values;  // of the first key head
  Index key_step, value_step;
  void* out;
  Type out_type;
  Index out_step;
  Index heads, group;  // key heads, and query heads of each
  Index count, dim, value_dim;
  double factor;  // of q · k, in units of log2
  float* max;     // [heads * group] the denominator of a row is sum * 2^max; null: not wanted
  double* sum;
};

/// One whole tile of some neighbouring heads of a cache, which all their query rows see.
struct ThinPass {
  static constexpr Index most_rows = 16;
  const std::byte* head;  // the first: its keys
  Index heads, head_bytes;
  Index value_offset, scale_offset;  // from a head's keys, in bytes; scale_offset 0: no scales
  Index dim, value_width;            // of a key, and of a stored row of values
  Index rows;                        // query rows of a head, at most most_rows
  const float* queries;              // [heads][rows][dim rounded up to thin_step]
  const std::byte* byte_queries;     // the same as ByteKernels pack them, where those are used
  SoftmaxTile* states;               // [heads]
  const std::byte* next;             // what is read after the last head
};

struct ByteKernels;     // int8_kernels.h
struct PairKernels;     // bf16_kernels.h
struct NetworkKernels;  // nn_kernels.h
/// Rows of a left or columns of a right operand of a matrix product, each a line along the depth:
/// number k of line i lies i * step + k * depth_step numbers from the first. One step is 1.
struct MatrixLines {
  const void* data;
  Type type;
  Index count, depth;
  Index step, depth_step;
};

/// Where a block of a matrix product goes.
struct MatrixResult {
  float* data;
  Index stride;  // between rows
  Index rows, columns;
  bool add;           // to what is there
  const float* bias;  // a number for each column, or null; not with `add`
};

/// Products of matrices of any size, of operands packed as numbers of type T. Lines are packed in
/// groups of `strip` rows, with zeros in the end, and of `panel` columns, in the last group as many
/// as there are in whole `unit`s; a group holds its lines' numbers times the depth, filled up with
/// zeros to whole `depth_unit`s.
///
///   float  strips [depth][strip], panels [depth][columns]; sums are chains of 16 terms, at most 16
///          of which make a block
///   Bf16   strips [strip][depth], panels [depth / 2][columns][2]; a block is one chain
template <class T>
struct BlockKernels {
  Index strip, panel, unit;
  Index depth, depth_unit;  // depth: of a block, at most
  void (*pack_strips)(const MatrixLines& rows, T* out) noexcept;
  void (*pack_panels)(const MatrixLines& columns, T* out) noexcept;
  /// depth: in whole units.
  void (*product)(const T* strips, const T* panels, Index depth, const MatrixResult& to) noexcept;
};

/// The inner loops for one instruction set: pointers and sizes only.
///
/// A tile of scores is [64][64] floats, row-major, 64-byte aligned. Operands come packed:
// clang-format off
///   strips  [16][depth][4]                   rows of a left operand
///   panels  [ceil(64/panel)][depth][panel]   64 columns of a right operand; the last may be narrower
///   rows    [ceil(width/panel)][64][panel]   64 rows of a right operand, likewise
///   key pairs    [pairs][64][2]              bf16, any pairs >= dim / 2: columns 2 p and 2 p + 1
///   value pairs  [2][16][width][2]           bf16, any width >= dim: slots 32 g + i and 32 g + 16 + i
///   key quads    [ceil(dim/4)][64][4]        int8: columns 4 i to 4 i + 3
///   value quads  [16][width][4]              int8, any width >= dim: slots i, 16 + i, 32 + i, 48 + i
// clang-format on
struct Kernels {
  const char* name;
  Index lanes;
  Index panel;

  // Packing: rows of `dim` numbers, each row times its factor (null: 1), the rest of the 64 rows
  // zero. False if a packed number is not finite.
  bool (*pack_strips)(const InputRows& rows, Index dim, const double* factors, float* out) noexcept;
  bool (*pack_panels)(const InputRows& rows, Index dim, const double* factors, float* out) noexcept;
  bool (*pack_rows)(const InputRows& rows, Index dim, const double* factors, float* out) noexcept;
  // Numbers of any type to f32 and back, rounded to nearest.
  void (*load_numbers)(const void* from, Type type, Index count, float* to) noexcept;
  void (*store_numbers)(const float* from, Index count, Type type, void* to) noexcept;

  // int8 tiles in quads, with a scale for each slot, to panels and rows; width is at most
  // quad_width.
  void (*unpack_key_quads)(const std::int8_t* quads, const float* scales, Index dim,
                           float* panels) noexcept;
  void (*unpack_value_quads)(const std::int8_t* quads, const float* scales, Index quad_width,
                             Index width, float* rows) noexcept;

  // bf16 tiles in pairs, the same on every instruction set. Packing takes up to 64 rows of any
  // type, rounds to nearest and fills up with zeros; false if a packed number is not finite.
  // Unpacking makes panels and rows; width is at most pair_width.
  bool (*pack_key_pairs)(const InputRows& rows, Index dim, Index pairs, Bf16* out) noexcept;
  bool (*pack_value_pairs)(const InputRows& rows, Index dim, Index width, Bf16* out) noexcept;
  void (*unpack_key_pairs)(const Bf16* pairs, Index dim, float* panels) noexcept;
  void (*unpack_value_pairs)(const Bf16* pairs, Index pair_width, Index width,
                             float* rows) noexcept;

  // Products. Only the strips below `row_strips` and the columns or depths inside the clips are
  // touched; null clips: all.
  void (*scores)(const float* left_strips, const float* panels, Index depth, Index row_strips,
                 const Clip* clips, float* scores) noexcept;
  void (*gather)(const float* scores, const float* rows, Index width, Index row_strips,
                 const Clip* clips, float* out) noexcept;
  void (*gather_columns)(const float* scores, const float* rows, Index width,
                         const Clip* query_clips, float* out) noexcept;

  // A few query rows against cached tiles of f32, bf16 or int8, in the order of CacheType. queries:
  // [rows][dim rounded up to thin_step], zeros in the end; out: [rows][width], in whole vectors.
  static constexpr Index thin_step = 4;
  struct Thin {
    void (*scores)(const float* queries, Index rows, const ThinTile& keys, Index dim,
                   float* scores) noexcept;
    void (*gather)(float* probabilities, Index rows, const ThinTile& values, Index width,
                   float* out) noexcept;
  };
  Thin thin[3];
  Thin open[3];  // where tokens lie in rows: keys `dim` numbers apart, values `width`
  // The same with keys and values as the caller keeps them: scores[r][j] = queries[r] · keys[j],
  // queries `stride` apart, and out[r][dim] += probabilities[r][j] values[j], out `width` apart.
  void (*row_scores)(const float* queries, Index stride, Index rows, const InputRows& keys,
                     Index dim, float* scores) noexcept;
  void (*row_gather)(const float* probabilities, Index rows, const InputRows& values, Index dim,
                     float* out, Index width) noexcept;

  // All of it for a call so short that nothing may stand around it.
  void (*attend_few)(const FewKeys& few) noexcept;

  BlockKernels<float> matrix;
  // A few rows, `stride` apart, times columns that lie one after the other and are not packed: the
  // same bits as of `matrix`, whose blocks of the depth follow one another.
  void (*matrix_rows)(const float* left, Index stride, const MatrixLines& columns,
                      const MatrixResult& to) noexcept;

  // Shaping the logits, in place.
  void (*softcap)(float* scores, Index row_strips, const Clip* clips, float cap,
                  float* tanh_out) noexcept;
  void (*add_diagonal)(float* scores, Index row_strips, const Clip* clips,
                       const float* diagonal) noexcept;
  void (*add_tile)(float* scores, Index row_strips, const Clip* clips, const float* bias) noexcept;
  void (*add_band)(float* scores, Index row_strips, const Clip* clips, const float* band) noexcept;

  // Softmax. `masks` is null for a whole tile. distance: position of row 0 minus position of column
  // 0.
  void (*absorb)(float* scores, Index rows, const Clip* clips, const std::uint64_t* masks,
                 SoftmaxTile& state) noexcept;
  void (*absorb_stats)(float* scores, Index rows, const Clip* clips, const std::uint64_t* masks,
                       SoftmaxTile& state, Index distance) noexcept;
  void (*flush)(SoftmaxTile& state, Index rows) noexcept;
  void (*finish)(const SoftmaxTile& state, Index row, double factor, Index dim,
                 float* out) noexcept;
  void (*drop)(float* scores, Index rows, const DropTile& how) noexcept;

  // Backward. scores -> p, dprobs -> dlogits.
  void (*differentiate)(float* scores, float* dprobs, Index rows, const std::uint64_t* masks,
                        const GradientTile& state) noexcept;
  void (*uncap)(float* dlogits, const float* tanh_of, Index rows) noexcept;
  void (*widen)(float* numbers, double* wide,
                Index count) noexcept;  // wide += numbers, numbers = 0
  void (*widen_first)(float* numbers, double* wide, Index count) noexcept;  // wide = numbers, ...
  void (*narrow)(const double* wide, const float* rest, double factor, Index count,
                 float* out) noexcept;
  void (*sum_diagonals)(const float* dlogits, Index rows, double* diagonals) noexcept;  // [127]

  // Rotary positions: the partner of a channel is half the rotated width away, or its neighbour.
  void (*rotate_far)(const RotaryRows& rows) noexcept;
  void (*rotate_near)(const RotaryRows& rows) noexcept;

  // Hashed attention. best[64]: first place of the largest among `rows` numbers of a column and
  // their negatives, which come after them; numbers [rows][64].
  void (*signed_argmax)(const float* numbers, Index rows, std::int32_t* best) noexcept;
  // Bit c of visible[r]: lows[r] <= keys[c] < highs[r]; of same[r]: keys[c] == queries[r] >= 0.
  void (*slot_words)(const std::int32_t* queries, const std::int32_t* lows,
                     const std::int32_t* highs, Index rows, const std::int32_t* keys,
                     std::uint64_t* visible, std::uint64_t* same) noexcept;

  // One query and rows of `dim` f32, bf16 or int8 that lie anywhere, in the order of CacheType.
  // scores: [count]; out: [dim], added to.
  struct Scattered {
    void (*scores)(const float* query, const void* const* rows, Index count, Index dim,
                   float* scores) noexcept;
    void (*sum)(const float* weights, const void* const* rows, Index count, Index dim,
                float* out) noexcept;
  };
  Scattered scattered[3];

  // What this instruction set can do at best.
  double (*fma_loop)(Index iterations) noexcept;  // flops done
  void (*exp2)(const float* x, Index count, float* y) noexcept;
  void (*tanh)(const float* x, Index count, float* y) noexcept;
  float (*read_loop)(const float* x, Index count) noexcept;

  /// The rest of a network: norms, activations, losses, the optimizer.
  const NetworkKernels* network;

  /// What multiplies bf16 operands as they are; null: they are widened to f32 first.
  const PairKernels* pairs = nullptr;
  // A whole tile in one go, logits being products and nothing more; in the order of CacheType.
  void (*thin_pass[3])(const ThinPass& pass) noexcept = {};
  /// The same over int8 in whole numbers, for CPUs with AVX512-VNNI; null: not with this target.
  const ByteKernels* bytes = nullptr;
  // The product of `matrix` with panels of f16 or bf16: the same bits as of f32.
  void (*matrix_f16)(const float* strips, const F16* panels, Index depth,
                     const MatrixResult& to) noexcept = nullptr;
  void (*matrix_bf16)(const float* strips, const Bf16* panels, Index depth,
                      const MatrixResult& to) noexcept = nullptr;
};

/// Best first; "scalar" runs everywhere.
std::span<const Kernels* const> supported_kernels();

}  // namespace rapt
