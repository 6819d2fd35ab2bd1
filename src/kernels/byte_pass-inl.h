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

#include "kernels/byte_kernels.h"
#include "kernels/thin_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3

/// Bytes that a number is cut into.
inline constexpr int digits = 3;

/// Adds four products of bytes to each lane: those of `bytes` have no sign, those of `codes` have.
/// As assembly: the target does not have the instruction, the CPU may.
HWY_INLINE VInts AddFours(VInts sums, VInts bytes, VInts codes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(bytes.raw), "v"(codes.raw));
  return sums;
}

/// The bits of a number's size: they are ordered as sizes are, with NaN above all.
HWY_INLINE VInts SizeBits(VF x) { return hn::BitCast(DInts(), hn::Abs(x)); }

/// The largest lane in all lanes.
HWY_INLINE VInts LargestLane(VInts x) {
  return VInts{_mm512_set1_epi32(_mm512_reduce_max_epi32(x.raw))};
}

/// Powers of two: x * up is x in steps.
struct Steps {
  VF up, step;  // step: NaN if a number is infinite or NaN
};

/// Steps in which the largest number takes `top` bits and one more; `carry` is added to its bits
/// before, so that numbers just below a power of two may count as that power.
template <int top, std::int32_t carry>
HWY_INLINE Steps StepsFor(VInts largest) {
  const DInts di;
  const DF d;
  const VInts power = hn::And(hn::Add(largest, hn::Set(di, carry)), hn::Set(di, 0x7F800000));
  const VInts safe = hn::Max(power, hn::Set(di, (top + 1) << 23));  // both stay normal numbers
  const VF step = hn::BitCast(d, hn::Sub(safe, hn::Set(di, top << 23)));
  return {hn::BitCast(d, hn::Sub(hn::Set(di, (254 + top) << 23), safe)),
          hn::MulAdd(hn::BitCast(d, largest), hn::Zero(d), step)};
}

HWY_INLINE VInts Nearest(VF x) { return VInts{_mm512_cvtps_epi32(x.raw)}; }

/// sums of digits, the lowest first, to the numbers they stand for. The lower two fit one lane: at
/// most 512 * 127 * 128 * 257, or 64 * 127 * 255 * 257.
HWY_INLINE VF Composed(const VInts (&sums)[digits]) {
  const DF d;
  const VInts low = hn::Add(hn::ShiftLeft<8>(sums[1]), sums[0]);
  return hn::MulAdd(hn::ConvertTo(d, sums[2]), hn::Set(d, 65536.0f), hn::ConvertTo(d, low));
}

/// What a packed query row begins with.
struct ByteQuery {
  std::int32_t start[digits];  // what sums of digits begin with, for codes that are 128 too large
  float step;
};

/// Three bytes with signs hold up to 0x7F7F7F: what would become more gets the next larger step.
HWY_INLINE Steps StepsOfQuery(VInts largest) { return StepsFor<22, 0x8101>(largest); }

/// One row. Digits of four neighbouring columns lie in one word, as their codes do.
HWY_INLINE void PackByteQuery(const float* query, Index dim, std::byte* out) {
  const DF d;
  const DInts di;
  const hn::Repartition<std::uint8_t, DInts> d8;
  alignas(16) static constexpr std::uint8_t together[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                            2, 6, 10, 14, 3, 7, 11, 15};
  const auto load = [&](Index c) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(dim - c)), d, query + c);
  };
  VInts largest = hn::Zero(di);
  for (Index c = 0; c < dim; c += lane_count) largest = hn::Max(largest, SizeBits(load(c)));
  const Steps steps = StepsOfQuery(LargestLane(largest));
  const VInts middle = hn::Set(di, 0x808080);
  VInts sums = hn::Zero(di);
  std::byte* words = out + sizeof(ByteQuery);
  for (Index c = 0; c < dim; c += lane_count, words += 64) {
    const VInts whole = Nearest(hn::Mul(load(c), steps.up));
    const VInts bytes = hn::Xor(hn::Add(whole, middle), middle);
    const auto four = hn::TableLookupBytes(hn::BitCast(d8, bytes), hn::LoadDup128(d8, together));
    sums = AddFours(sums, hn::Set(di, 0x01010101), hn::BitCast(di, four));
    hn::StoreU(four, d8, reinterpret_cast<std::uint8_t*>(words));
  }
  alignas(64) std::int32_t of[lane_count];
  hn::Store(sums, di, of);
  ByteQuery about{{}, hn::GetLane(steps.step)};
  for (int t = 0; t < digits; ++t)
    about.start[t] = -128 * (of[t] + of[4 + t] + of[8 + t] + of[12 + t]);
  std::memcpy(out, &about, sizeof about);
}

inline void PackByteQueries(const float* queries, Index rows, Index dim, std::byte* out) noexcept {
  const Index stride = (dim + Kernels::thin_step - 1) / Kernels::thin_step * Kernels::thin_step;
  for (Index r = 0; r < rows; ++r)
    PackByteQuery(queries + r * stride, dim, out + r * byte_query_size(dim));
}

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
      const VF factor = hn::Mul(hn::LoadU(d, keys.scales + v * lane_count), step);
      hn::StoreU(hn::Mul(Composed(sums[r][v]), factor), d, scores + r * tile + v * lane_count);
    }
  }
}

/// Probabilities times the scales of their values, in whole numbers.
struct ByteWeights {
  // [rows][digits][16] of four slots each, the slots of a word of values
  alignas(64) std::int32_t words[ThinPass::most_rows][digits][word_gap];
  float step[ThinPass::most_rows];
};

/// out[t]: bytes t of four vectors, side by side in their lanes.
HWY_INLINE void GatherBytes(const VInts (&x)[4], VInts (&out)[digits]) {
  const DInts di;
  const VInts lower = hn::Set(di, 0xFFFF);
  const hn::Repartition<std::uint8_t, DInts> d8;
  alignas(16) static constexpr std::uint8_t swap[16] = {0, 2,  1, 3,  4,  6,  5,  7,
                                                        8, 10, 9, 11, 12, 14, 13, 15};
  const auto table = hn::LoadDup128(d8, swap);
  const auto halves = [&](VInts a, VInts b) {
    const VInts both = hn::Or(hn::And(a, lower), hn::ShiftLeft<16>(b));
    return hn::BitCast(di, hn::TableLookupBytes(hn::BitCast(d8, both), table));
  };
  const auto upper = [&](VInts x) { return VInts{_mm512_srli_epi32(x.raw, 16)}; };
  const VInts first = halves(x[0], x[1]), second = halves(x[2], x[3]);
  out[0] = hn::Or(hn::And(first, lower), hn::ShiftLeft<16>(second));
  out[1] = hn::Or(upper(first), hn::AndNot(lower, second));
  out[2] = hn::Or(hn::Or(upper(x[0]), hn::ShiftLeft<8>(upper(x[1]))),
                  hn::Or(hn::AndNot(lower, x[2]), hn::ShiftLeft<8>(hn::AndNot(lower, x[3]))));
}

/// Weights are not negative: 24 bits without sign, in which the largest loses nothing.
HWY_INLINE void WeighInBytes(const float* probabilities, const float* scales, Index row,
                             ByteWeights& to) {
  const DF d;
  const DInts di;
  constexpr int vectors = tile / lane_count;
  static_assert(vectors == 4 && lane_count == word_gap);
  VF weight[vectors];
  VInts largest = hn::Zero(di);
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    weight[v] =
        hn::Mul(hn::Load(d, probabilities + v * lane_count), hn::LoadU(d, scales + v * lane_count));
    largest = hn::Max(largest, SizeBits(weight[v]));
  }
  const Steps steps = StepsFor<23, 0>(LargestLane(largest));
  VInts whole[vectors], words[digits];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) whole[v] = Nearest(hn::Mul(weight[v], steps.up));
  GatherBytes(whole, words);
#pragma GCC unroll 3
  for (int t = 0; t < digits; ++t) hn::Store(words[t], di, to.words[row][t]);
  to.step[row] = hn::GetLane(steps.step);
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
      : at_(head + distance),
        end_(pass.head + pass.heads * pass.head_bytes),
        jump_(pass.next - end_) {}

  template <int vectors>
  HWY_INLINE void Step() {
    if (HWY_UNLIKELY(at_ >= end_)) {
      at_ += jump_;
      jump_ = 0;
    }
#pragma GCC unroll 8
    for (int line = 0; line < vectors; ++line) __builtin_prefetch(at_ + 64 * line, 0, 2);
    at_ += 64 * vectors;
  }

 private:
  static constexpr Index distance = Index{16} << 10;
  const std::byte* at_;
  const std::byte* end_;
  Index jump_;
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
