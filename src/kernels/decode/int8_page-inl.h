// A whole tile of int8 past a few query rows of each head in whole numbers (AVX512-VNNI).
//
// A query is rounded to fixed point, in steps of a power of two just above 2^-23 of its largest
// number, and cut into three bytes; so are the probabilities of a tile times the scales of their
// values. Products of bytes add up exactly in 32 bits and become floats once a tile.
// docs/exactness.md says what that costs: little against what storing keys and values in bytes has
// cost before.
//
// Per 64 codes three instructions for each query row. As floats they take four multiply-adds for
// each row, and eight operations more to become floats.
#if defined(RAPT_BYTE_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BYTE_PASS_INL_H
#undef RAPT_BYTE_PASS_INL_H
#else
#define RAPT_BYTE_PASS_INL_H
#endif

#include "kernels/decode/full_page-inl.h"
#include "kernels/decode/int8_query-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3

/// A word in all lanes.
HWY_INLINE VInts Everywhere(const std::byte* word) {
  std::int32_t number;
  std::memcpy(&number, word, sizeof number);
  return hn::Set(DInts(), number);
}

HWY_INLINE VInts LoadCodes(const std::byte* from) {
  return LoadQuads(reinterpret_cast<const std::int8_t*>(from));
}

/// Keys, or some of the slots of a tile of them.
struct ByteKeys {
  const std::byte* at;
  Index depth;  // words of a key
  const float* scales;
};

/// scores[r][slots] of `vectors` vectors of slots.
template <int rows, int vectors, class Stream>
HWY_INLINE void ByteScores(const std::byte* queries, Index query_bytes, const ByteKeys& keys,
                           Stream& ahead, float* scores) {
  const DF d;
  const VInts raise = hn::Set(DInts(), static_cast<std::int32_t>(0x80808080u));
  VInts sums[rows][vectors][digits];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
    for (int t = 0; t < digits; ++t) {
      const VInts start = Everywhere(queries + r * query_bytes + 4 * t);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v][t] = start;
    }
  }
  const std::byte* words = queries + sizeof(ByteQuery);
  for (Index k = 0; k < keys.depth; ++k) {
    const std::byte* row = keys.at + k * tile * lane_bytes;
    ahead.template Step<vectors>();
    VInts codes[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) codes[v] = hn::Xor(LoadCodes(row + 64 * v), raise);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
      for (int t = 0; t < digits; ++t) {
        const VInts digit = Everywhere(words + r * query_bytes + 16 * k + 4 * t);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sums[r][v][t] = AddFours(sums[r][v][t], codes[v], digit);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    ByteQuery about;
    std::memcpy(&about, queries + r * query_bytes, sizeof about);
    const VF step = hn::Set(d, about.step);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      // In this order: a step times a scale may be infinite where the sum is 0.
      const VF product = hn::Mul(Composed(sums[r][v]), step);
      hn::StoreU(hn::Mul(product, hn::LoadU(d, keys.scales + v * lane_count)), d,
                 scores + r * tile + v * lane_count);
    }
  }
}

/// Values, or some of their columns.
struct ByteValues {
  const std::byte* at;
  Index row_bytes;
};

/// All products of one row of values. Of one query row the digits stay in registers, of several the
/// codes: there are not enough for both.
template <int rows, int vectors>
HWY_INLINE void AddByteRow(const std::byte* codes, const std::byte* words,
                           VInts (&sums)[rows][vectors][digits]) {
  constexpr Index step = word_gap * lane_bytes;  // from one digit to the next
  if constexpr (rows == 1) {
    VInts digit[digits];
#pragma GCC unroll 3
    for (int t = 0; t < digits; ++t) digit[t] = Everywhere(words + t * step);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const VInts some = KeptInRegister(LoadCodes(codes + 64 * v));
#pragma GCC unroll 3
      for (int t = 0; t < digits; ++t) sums[0][v][t] = AddFours(sums[0][v][t], digit[t], some);
    }
  } else {
    VInts some[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) some[v] = LoadCodes(codes + 64 * v);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
      for (int t = 0; t < digits; ++t) {
        const VInts digit = Everywhere(words + (r * digits + t) * step);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sums[r][v][t] = AddFours(sums[r][v][t], digit, some[v]);
      }
    }
  }
}

/// out[r][columns] += weights[r] · values, of `vectors` vectors of columns.
template <int rows, int vectors, class Stream>
HWY_INLINE void ByteGather(const ByteWeights& weights, Index first_row, const ByteValues& values,
                           Stream& ahead, float* out, Index width) {
  const DF d;
  VInts sums[rows][vectors][digits];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 3
      for (int t = 0; t < digits; ++t) sums[r][v][t] = hn::Zero(DInts());
    }
  }
  const auto* words = reinterpret_cast<const std::byte*>(weights.words[first_row]);
  for (Index i = 0; i < word_gap; ++i) {
    const std::byte* row = values.at + i * values.row_bytes;
    ahead.template Step<vectors>();
    AddByteRow(row, words + 4 * i, sums);
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    const VF step = hn::Set(d, weights.step[first_row + r]);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      float* to = out + r * width + v * lane_count;
      hn::StoreU(hn::MulAdd(Composed(sums[r][v]), step, hn::LoadU(d, to)), d, to);
    }
  }
}

/// Vectors of columns that there are accumulators for.
template <int rows>
inline constexpr int byte_vectors = 8 / rows;

/// The same for all columns, from narrower to narrower panels.
template <int rows, int vectors = byte_vectors<rows>, class Stream>
HWY_INLINE void ByteGatherAll(const ByteWeights& weights, Index first_row, ByteValues values,
                              Stream& ahead, float* out, Index width, Index columns) {
  for (; columns >= vectors * lane_count; columns -= vectors * lane_count) {
    ByteGather<rows, vectors>(weights, first_row, values, ahead, out, width);
    values.at += vectors * lane_count * lane_bytes;
    out += vectors * lane_count;
  }
  if constexpr (vectors > 1)
    ByteGatherAll<rows, vectors / 2>(weights, first_row, values, ahead, out, width, columns);
}

/// Asks for memory in the order in which it lies, into the second cache: scales lie behind the
/// values and are read before them, and a tile is over sooner than memory answers. From memory, 16
/// x 64; 16 x 128, of reading: 0.87; 0.88. Into the first cache 0.80; 0.81, 4 KiB ahead 0.52; 0.81
/// and into the first 0.47; 0.68, not at all 0.60; 0.81. 32 or 64 KiB are no better than 16.
class ByteStream {
 public:
  ByteStream(const ThinPass& pass, const std::byte* head)
      : at_(reinterpret_cast<std::uintptr_t>(head) + distance),
        end_(reinterpret_cast<std::uintptr_t>(pass.head) +
             static_cast<std::uintptr_t>(pass.heads * pass.head_bytes)),
        jump_(reinterpret_cast<std::uintptr_t>(pass.next) - end_) {}

  template <int vectors>
  HWY_INLINE void Step() {
    if (HWY_UNLIKELY(at_ >= end_)) {
      at_ += jump_;
      end_ = ~std::uintptr_t{0};
    }
#pragma GCC unroll 8
    for (std::uintptr_t line = 0; line < vectors; ++line)
      __builtin_prefetch(reinterpret_cast<const void*>(at_ + 64 * line), 0, 2);
    at_ += 64 * vectors;
  }

 private:
  static constexpr std::uintptr_t distance = 16 << 10;
  std::uintptr_t at_, end_, jump_;
};

/// Calls run(block, first row, stream) for rows in blocks of four, two and one. Memory is asked for
/// once, by the first.
template <class Run>
HWY_INLINE void ForByteRows(Index rows, ByteStream& ahead, const Run& run) {
  NothingAhead nothing;
  Index r = 0;
  const auto with = [&](auto count) {
    if (r == 0) {
      run(count, r, ahead);
    } else {
      run(count, r, nothing);
    }
    r += decltype(count)::value;
  };
  while (rows - r >= 4) with(std::integral_constant<int, 4>());
  while (rows - r >= 2) with(std::integral_constant<int, 2>());
  if (rows > r) with(std::integral_constant<int, 1>());
}

/// One head of a tile.
struct ByteHead {
  ByteHead(const ThinPass& pass, Index h)
      : keys(pass.head + h * pass.head_bytes),
        values(keys + pass.value_offset),
        scales(reinterpret_cast<const float*>(keys + pass.scale_offset)),
        queries(pass.byte_queries + h * pass.rows * byte_query_size(pass.dim)) {}

  const std::byte* keys;
  const std::byte* values;
  const float* scales;  // of keys, then of values
  const std::byte* queries;
};

HWY_INLINE void ScoreByteHead(const ThinPass& pass, const ByteHead& head, ByteStream& stream,
                              float* scores) {
  const Index query_bytes = byte_query_size(pass.dim), depth = (pass.dim + 3) / 4;
  ForByteRows(pass.rows, stream, [&](auto count, Index r, auto& ahead) {
    constexpr int rows = decltype(count)::value;
    constexpr int vectors = std::min(4, byte_vectors<rows>);
    for (Index c = 0; c < tile; c += vectors * lane_count)
      ByteScores<rows, vectors>(head.queries + r * query_bytes, query_bytes,
                                {head.keys + c * lane_bytes, depth, head.scales + c}, ahead,
                                scores + r * tile + c);
  });
}

HWY_INLINE void GatherByteHead(const ThinPass& pass, const ByteHead& head, ByteStream& stream,
                               const ByteWeights& weights, const SoftmaxTile& state) {
  const ByteValues all{head.values, pass.value_width * lane_bytes};
  ForByteRows(pass.rows, stream, [&](auto count, Index r, auto& ahead) {
    ByteGatherAll<decltype(count)::value>(weights, r, all, ahead, state.out + r * state.width,
                                          state.width, state.width);
  });
}

inline void PassByteTile(const ThinPass& pass) noexcept {
  alignas(64) float scores[ThinPass::most_rows * tile];
  ByteWeights weights;
  for (Index h = 0; h < pass.heads; ++h) {
    const ByteHead head(pass, h);
    ByteStream stream(pass, head.keys);
    stream.Step<8>();  // as much as the scales take: the products step as far as the rest
    ScoreByteHead(pass, head, stream, scores);
    AbsorbWhole(scores, pass.rows, pass.states[h]);
    for (Index r = 0; r < pass.rows; ++r)
      WeighInBytes(scores + r * tile, head.scales + tile, r, weights);
    GatherByteHead(pass, head, stream, weights, pass.states[h]);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
