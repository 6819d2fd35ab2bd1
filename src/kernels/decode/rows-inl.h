// Products of a few query rows with keys and values in rows, in the caller's memory or in the
// partial page of a cache: each is used so seldom that packing would take longer than the products.
// Eight accumulators are always busy.
#if defined(RAPT_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_ROWS_INL_H
#undef RAPT_ROWS_INL_H
#else
#define RAPT_ROWS_INL_H
#endif

#include "kernels/common/convert-inl.h"
#include "kernels/decode_kernels.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
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

/// Query rows, `stride` apart, and where their scores go, one tile row after the other.
struct DotQueries {
  const float* at;
  Index stride;
  float* scores;
};

/// Scores of `keys` neighbouring keys over columns begin .. end - 1, whole vectors and a rest.
template <int rows, int keys, class Number>
HWY_INLINE void DotSomeKeys(const DotQueries& q, const Number* key, Index key_stride, Index begin,
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

/// All columns, a stretch of vectors at a time: the longest chain of f32 sums.
template <int rows, int keys, class Number>
HWY_INLINE void DotKeys(const DotQueries& q, const Number* key, Index key_stride, Index dim) {
  for (Index begin = 0; begin < dim; begin += stretch * lane_count)
    DotSomeKeys<rows, keys>(q, key, key_stride, begin, std::min(dim, begin + stretch * lane_count));
}

/// Prefetches a later row: tiles of keys and of values alternate, and the hardware prefetcher loses
/// track of both. Into L2: L1 handles so few misses at a time that it halves the speed (16 x 64,
/// 65,536 keys, 2 threads: 18 against 35 GB/s; 16 KiB ahead 33).
template <class Number>
HWY_INLINE void PrefetchLater(const Number* row, Index stride, Index numbers) {
  constexpr Index prefetch_bytes = 8192;
  const Index bytes = numbers * Index{sizeof(Number)};
  const Index step = (prefetch_bytes + bytes - 1) / bytes * stride * Index{sizeof(Number)};
  const std::uintptr_t at =  // maybe past the end, where prefetching does no harm
      reinterpret_cast<std::uintptr_t>(row) + static_cast<std::uintptr_t>(step);
  for (std::uintptr_t line = 0; line < static_cast<std::uintptr_t>(bytes); line += 64)
    __builtin_prefetch(reinterpret_cast<const void*>(at + line), 0, 2);
}

/// Rows of `dim` numbers.
template <class Number>
struct NumberRows {
  const Number* at;
  Index stride, count;
  bool prefetch;  // whether more rows follow, to be prefetched
};

/// As many keys as have accumulators, then half as many, then one by one.
template <int rows, int together = row_accumulators / rows, class Number>
HWY_INLINE void DotRows(DotQueries q, NumberRows<Number> keys, Index dim) {
  for (; keys.count >= together; keys.count -= together, q.scores += together) {
    if (keys.prefetch)
      for (int i = 0; i < together; ++i) PrefetchLater(keys.at + i * keys.stride, keys.stride, dim);
    DotKeys<rows, together>(q, keys.at, keys.stride, dim);
    keys.at += together * keys.stride;
  }
  if constexpr (together > 1) {
    keys.prefetch = false;
    DotRows<rows, (rows * together > 4 ? together / 2 : 1)>(q, keys, dim);
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

/// Calls with_numbers(typed pointer to the rows).
template <class WithNumbers>
HWY_INLINE void DispatchRows(const StoredRows& rows, const WithNumbers& with_numbers) {
  if (rows.scales != nullptr) return with_numbers(static_cast<const std::int8_t*>(rows.data));
  Dispatch(rows.data, rows.type, with_numbers);
}

/// numbers[r][c] *= factors[c]
HWY_INLINE void MultiplyColumns(float* numbers, Index rows, const float* factors) {
  const DF d;
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < tile; c += lane_count) {
      float* at = numbers + r * tile + c;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), hn::LoadU(d, factors + c)), d, at);
    }
  }
}

/// scores[r][row] = queries[r] · keys, times the keys' scales if there are any.
inline void RowScores(const float* queries, Index rows, const StoredRows& keys, Index dim,
                      float* scores) noexcept {
  const Index stride = DecodeKernels::query_stride(dim);
  DispatchRows(keys, [&]<class Number>(const Number* key) {
    const NumberRows<Number> all{key, keys.stride, keys.count, keys.prefetch};
    InRowBlocks(rows, [&](Index r, auto block) {
      DotRows<decltype(block)::value>({queries + r * stride, stride, scores + r * tile}, all, dim);
    });
  });
  if (keys.scales != nullptr) MultiplyColumns(scores, rows, keys.scales);
}

/// out[rows][vectors] += p · values, both from the same column on.
template <int rows, int vectors, class Number>
HWY_INLINE void WeightedVectors(const float* p, const NumberRows<Number>& values, Index column,
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
HWY_INLINE void WeightedRows(const float* p, const NumberRows<Number>& values, Index dim,
                             float* out, Index width) {
  constexpr int together = row_accumulators / rows;
  constexpr int half = std::max(1, together / 2);
  Index c = 0;
  for (; c + together * lane_count <= dim; c += together * lane_count)
    WeightedVectors<rows, together>(p, values, c, out, width);
  for (; c + half * lane_count <= dim; c += half * lane_count)
    WeightedVectors<rows, half>(p, values, c, out, width);
  for (; c + lane_count <= dim; c += lane_count) WeightedVectors<rows, 1>(p, values, c, out, width);
  for (; c < dim; ++c) {
    for (int r = 0; r < rows; ++r) {
      float sum = 0;
      for (Index j = 0; j < values.count; ++j)
        sum += p[r * tile + j] * static_cast<float>(values.at[j * values.stride + c]);
      out[r * width + c] += sum;
    }
  }
}

/// out[r][dim] += probabilities[r] · values, `chain` of them at a time: those stay in L1 while all
/// columns and rows pass over them.
inline void RowAccumulateValues(float* probabilities, Index rows, const StoredRows& values,
                                Index dim, float* out, Index width) noexcept {
  if (values.scales != nullptr) MultiplyColumns(probabilities, rows, values.scales);
  DispatchRows(values, [&]<class Number>(const Number* value) {
    for (Index first = 0; first < values.count; first += values.chain) {
      const NumberRows<Number> some{value + first * values.stride, values.stride,
                                    std::min(values.chain, values.count - first), values.prefetch};
      for (Index j = 0; some.prefetch && j < some.count; ++j)
        PrefetchLater(some.at + j * some.stride, some.stride, dim);
      InRowBlocks(rows, [&](Index r, auto block) {
        WeightedRows<decltype(block)::value>(probabilities + r * tile + first, some, dim,
                                             out + r * width, width);
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
