// Products of a few query rows with keys and values as the caller keeps them, row after row: where
// each is used so seldom, packing them would take longer than the products. Eight accumulators are
// always busy.
#if defined(RAPT_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_ROWS_INL_H
#undef RAPT_ROWS_INL_H
#else
#define RAPT_ROWS_INL_H
#endif

#include "kernels/common/convert-inl.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int row_accumulators = 8;

#if HWY_TARGET != HWY_SCALAR
/// The sum of all blocks of four lanes.
template <class D>
HWY_INLINE hn::Vec<hn::Full128<float>> SumOfBlocks(D d, hn::Vec<D> x) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    static_cast<void>(d);
    return x;
  } else {
    const hn::Half<D> half;
    return SumOfBlocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  }
}
#endif

/// out[i] = the sum of x[i]'s lanes, for four vectors.
HWY_INLINE void StoreFourSums(const VF* x, float* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) out[i] = hn::GetLane(x[i]);
#else
  const DF d;
  const hn::Full128<float> d4;
  const hn::Repartition<std::uint64_t, DF> d64;
  const auto join = [&](VF a, VF b) {
    return hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto ab = join(x[0], x[1]), cd = join(x[2], x[3]);
  const VF blocks = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab, cd)),
                            hn::BitCast(d, hn::InterleaveUpper(d64, ab, cd)));
  hn::StoreU(SumOfBlocks(d, blocks), d4, out);
#endif
}

/// Query rows, one `stride` after the other, and where their scores go, one tile row after the
/// other.
struct FewQueries {
  const float* at;
  Index stride;
  float* scores;
};

/// Scores of `keys` neighbouring keys over columns begin .. end - 1, whole vectors and a rest.
template <int rows, int keys, class Number>
HWY_INLINE void ScoreSomeKeys(const FewQueries& q, const Number* key, Index key_stride, Index begin,
                              Index end) {
  const DF d;
  VF acc[rows * keys];
#pragma GCC unroll 8
  for (int i = 0; i < rows * keys; ++i) acc[i] = hn::Zero(d);
  Index c = begin;
  for (; c + lane_count <= end; c += lane_count) {
    VF x[keys];
#pragma GCC unroll 8
    for (int j = 0; j < keys; ++j) x[j] = LoadFloats(d, key + j * key_stride + c);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const VF left = hn::LoadU(d, q.at + r * q.stride + c);
#pragma GCC unroll 8
      for (int j = 0; j < keys; ++j) acc[r * keys + j] = hn::MulAdd(left, x[j], acc[r * keys + j]);
    }
  }
  float sums[rows * keys];
  if constexpr (rows * keys % 4 == 0) {
#pragma GCC unroll 8
    for (int i = 0; i < rows * keys; i += 4) StoreFourSums(acc + i, sums + i);
  } else {
    for (int i = 0; i < rows * keys; ++i) sums[i] = hn::GetLane(hn::SumOfLanes(d, acc[i]));
  }
  for (int r = 0; r < rows; ++r) {
    float* to = q.scores + r * tile;
    for (int j = 0; j < keys; ++j) {
      float sum = sums[r * keys + j];
      for (Index rest = c; rest < end; ++rest)
        sum += q.at[r * q.stride + rest] * static_cast<float>(key[j * key_stride + rest]);
      to[j] = begin == 0 ? sum : to[j] + sum;
    }
  }
}

/// All columns, a stretch of vectors at a time: so long a chain of f32 sums may be.
template <int rows, int keys, class Number>
HWY_INLINE void ScoreKeys(const FewQueries& q, const Number* key, Index key_stride, Index dim) {
  for (Index begin = 0; begin < dim; begin += stretch * lane_count)
    ScoreSomeKeys<rows, keys>(q, key, key_stride, begin,
                              std::min(dim, begin + stretch * lane_count));
}

/// Asks for the row that lies so many bytes ahead: tiles of keys and of values take turns, and the
/// processor loses track of both. Into the second cache: the first has so few misses under way at a
/// time that it halves the speed (16 x 64, 65,536 keys, 2 threads: 18 against 35 GB/s; 16 KiB ahead
/// 33).
template <class Number>
HWY_INLINE void PrefetchAhead(const Number* row, Index stride, Index numbers) {
  constexpr Index bytes_ahead = 8192;
  const Index bytes = numbers * Index{sizeof(Number)};
  const Index step = (bytes_ahead + bytes - 1) / bytes * stride * Index{sizeof(Number)};
  const std::uintptr_t at =  // maybe past the end, where asking does no harm
      reinterpret_cast<std::uintptr_t>(row) + static_cast<std::uintptr_t>(step);
  for (std::uintptr_t line = 0; line < static_cast<std::uintptr_t>(bytes); line += 64)
    __builtin_prefetch(reinterpret_cast<const void*>(at + line), 0, 2);
}

/// Rows of `dim` numbers.
template <class Number>
struct NumberRows {
  const Number* at;
  Index stride, count;
  bool ahead;  // whether more of them follow, to be asked for before they are read
};

/// As many keys as go together, then half as many, then one by one.
template <int rows, int together = row_accumulators / rows, class Number>
HWY_INLINE void ScoreRows(FewQueries q, NumberRows<Number> keys, Index dim) {
  for (; keys.count >= together; keys.count -= together, q.scores += together) {
    if (keys.ahead)
      for (int i = 0; i < together; ++i) PrefetchAhead(keys.at + i * keys.stride, keys.stride, dim);
    ScoreKeys<rows, together>(q, keys.at, keys.stride, dim);
    keys.at += together * keys.stride;
  }
  if constexpr (together > 1) {
    keys.ahead = false;
    ScoreRows<rows, (rows * together > 4 ? together / 2 : 1)>(q, keys, dim);
  }
}

/// Calls with_rows(first row, number of rows as a type) for blocks of four, two and one rows.
template <class WithRows>
HWY_INLINE void InRowBlocks(Index rows, const WithRows& with_rows) {
  Index r = 0;
  for (; r + 4 <= rows; r += 4) with_rows(r, std::integral_constant<int, 4>());
  for (; r + 2 <= rows; r += 2) with_rows(r, std::integral_constant<int, 2>());
  if (r < rows) with_rows(r, std::integral_constant<int, 1>());
}

inline void RowScores(const float* queries, Index stride, Index rows, const InputRows& keys,
                      Index dim, float* scores) noexcept {
  Dispatch(keys.data, keys.type, [&]<class Number>(const Number* key) {
    InRowBlocks(rows, [&](Index r, auto block) {
      ScoreRows<decltype(block)::value>(
          {queries + r * stride, stride, scores + r * tile},
          NumberRows<Number>{key, keys.stride, keys.count, keys.ahead}, dim);
    });
  });
}

/// out[rows][vectors] += p · values, both from the same column on.
template <int rows, int vectors, class Number>
HWY_INLINE void GatherVectors(const float* p, const NumberRows<Number>& values, Index column,
                              float* out, Index width) {
  const DF d;
  VF acc[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) acc[r][v] = hn::Zero(d);
  }
  const Number* value = values.at + column;
  for (Index j = 0; j < values.count; ++j, value += values.stride) {
    VF x[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) x[v] = LoadFloats(d, value + v * lane_count);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const VF left = hn::Set(d, p[r * tile + j]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) acc[r][v] = hn::MulAdd(left, x[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      float* to = out + r * width + column + v * lane_count;
      hn::StoreU(hn::Add(hn::LoadU(d, to), acc[r][v]), d, to);
    }
  }
}

template <int rows, class Number>
HWY_INLINE void GatherRows(const float* p, const NumberRows<Number>& values, Index dim, float* out,
                           Index width) {
  constexpr int together = row_accumulators / rows;
  constexpr int half = std::max(1, together / 2);
  Index c = 0;
  for (; c + together * lane_count <= dim; c += together * lane_count)
    GatherVectors<rows, together>(p, values, c, out, width);
  for (; c + half * lane_count <= dim; c += half * lane_count)
    GatherVectors<rows, half>(p, values, c, out, width);
  for (; c + lane_count <= dim; c += lane_count) GatherVectors<rows, 1>(p, values, c, out, width);
  for (; c < dim; ++c) {
    for (int r = 0; r < rows; ++r) {
      float sum = 0;
      for (Index j = 0; j < values.count; ++j)
        sum += p[r * tile + j] * static_cast<float>(values.at[j * values.stride + c]);
      out[r * width + c] += sum;
    }
  }
}

/// Values that stay in the first cache while all columns and rows pass over them.
inline constexpr Index values_at_once = 32;

inline void RowGather(const float* probabilities, Index rows, const InputRows& values, Index dim,
                      float* out, Index width) noexcept {
  Dispatch(values.data, values.type, [&]<class Number>(const Number* value) {
    for (Index first = 0; first < values.count; first += values_at_once) {
      const NumberRows<Number> some{value + first * values.stride, values.stride,
                                    std::min(values_at_once, values.count - first), values.ahead};
      for (Index j = 0; some.ahead && j < some.count; ++j)
        PrefetchAhead(some.at + j * some.stride, some.stride, dim);
      InRowBlocks(rows, [&](Index r, auto block) {
        GatherRows<decltype(block)::value>(probabilities + r * tile + first, some, dim,
                                           out + r * width, width);
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
