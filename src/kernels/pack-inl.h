// Packing: rows of the caller's memory into the layouts the products read. Each number is read once
// and written once; 4x4 blocks are transposed in registers so that neither side is touched a float
// at a time.
#if defined(RAPT_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_PACK_INL_H
#undef RAPT_PACK_INL_H
#else
#define RAPT_PACK_INL_H
#endif

#include <cstring>

#include "kernels/number-inl.h"
#include "kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Adds up x - x: stays 0 for finite numbers and becomes NaN for the rest.
struct FiniteCheck {
  using D4 = hn::CappedTag<float, 4>;  // one lane where there are no vectors
  hn::Vec<D4> sum;
  float rest;
  HWY_INLINE FiniteCheck() : sum(hn::Zero(D4())), rest(0) {}
  HWY_INLINE void See(hn::Vec<D4> x) { sum = hn::Add(sum, hn::Sub(x, x)); }
  HWY_INLINE void See(float x) { rest += x - x; }
  HWY_INLINE bool Finite() const {
    const D4 d;
    const float total = hn::GetLane(hn::SumOfLanes(d, sum)) + rest;
    return total == 0;
  }
};

/// A factor in two floats, so that x * factor is rounded once and not twice.
struct Factor {
  float high, low;
  HWY_INLINE explicit Factor(double factor)
      : high(static_cast<float>(factor)),
        low(static_cast<float>(factor - static_cast<double>(high))) {}
  HWY_INLINE Factor() : high(1), low(0) {}
  HWY_INLINE float Times(float x) const {
    const double exact = static_cast<double>(x) * (static_cast<double>(high) + low);
    return static_cast<float>(exact);
  }
  /// An infinite x must not meet low, which may be 0 or of the other sign.
  template <class V>
  HWY_INLINE V Times(V x) const {
    const FiniteCheck::D4 d;
    const auto finite = hn::Eq(hn::Sub(x, x), hn::Zero(d));
    const V rest = hn::IfThenElseZero(finite, hn::Mul(x, hn::Set(d, low)));
    return hn::MulAdd(x, hn::Set(d, high), rest);
  }
};

/// The factor of rows that have none: keys and values are packed once per call, and it shows.
struct NoFactor {
  template <class V>
  HWY_INLINE V Times(V x) const {
    return x;
  }
};

/// Writes out[column * out_stride + row] for 4 rows and `dim` columns, times a factor per row.
template <class T, class F>
HWY_INLINE void TransposeFour(const T* const (&rows)[4], const F (&factors)[4], Index dim,
                              float* out, Index out_stride, FiniteCheck& finite) {
  Index c = 0;
#if HWY_TARGET != HWY_SCALAR
  const FiniteCheck::D4 d;
  const hn::Repartition<double, FiniteCheck::D4> d2;
  for (; c + 4 <= dim; c += 4) {
    hn::Vec<FiniteCheck::D4> r[4];
    for (int i = 0; i < 4; ++i) {
      r[i] = factors[i].Times(LoadFloats(d, rows[i] + c));
      finite.See(r[i]);
    }
    const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, r[0], r[1]));
    const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, r[2], r[3]));
    const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, r[0], r[1]));
    const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, r[2], r[3]));
    float* to = out + c * out_stride;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, low01, low23)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23)), d, to + out_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, high01, high23)), d, to + 2 * out_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23)), d, to + 3 * out_stride);
  }
#endif
  for (; c < dim; ++c) {
    for (int i = 0; i < 4; ++i) {
      const float x = factors[i].Times(static_cast<float>(rows[i][c]));
      finite.See(x);
      out[c * out_stride + i] = x;
    }
  }
}

/// Stands for rows that are not there.
template <class T>
inline constexpr T no_numbers[max_dim] = {};

template <class T>
HWY_INLINE const T* RowOf(const T* data, const InputRows& rows, Index r) {
  if (rows.order == nullptr) return data + r * rows.stride;
  return rows.order[r] < 0 ? no_numbers<T> : data + rows.order[r] * rows.stride;
}

/// Rows in any order are asked for a little before they are read.
template <class T>
HWY_INLINE void PrefetchRows(const T* data, const InputRows& rows, Index first, Index end,
                             Index numbers) {
  if (rows.order == nullptr) return;
  for (Index r = first; r < std::min(end, rows.count); ++r) {
    const char* row = reinterpret_cast<const char*>(RowOf(data, rows, r));
    for (Index byte = 0; byte < numbers * Index{sizeof(T)}; byte += 64)
      __builtin_prefetch(row + byte);
  }
}
inline constexpr Index rows_ahead = 8;

/// Rows first .. first + 3, of which those below `count` exist; the others read the last and count
/// for nothing.
template <class T>
struct FourRows {
  const T* rows[4];
  Factor factors[4];
  Index missing;
  FourRows(const T* data, const InputRows& input, Index first, const double* factor)
      : missing(std::max<Index>(0, first + 4 - input.count)) {
    for (Index i = 0; i < 4; ++i) {
      const Index row = std::min(first + i, input.count - 1);
      rows[i] = RowOf(data, input, row);
      if (factor != nullptr) factors[i] = Factor(factor[row]);
    }
  }
};

HWY_INLINE void ClearColumns(float* out, Index out_stride, Index dim, Index from) {
  for (Index c = 0; c < dim; ++c) {
    for (Index i = from; i < 4; ++i) out[c * out_stride + i] = 0;
  }
}

template <class T>
HWY_INLINE void PackFour(const T* data, const InputRows& rows, Index first, Index dim,
                         const double* factors, float* out, Index out_stride, FiniteCheck& finite) {
  PrefetchRows(data, rows, first + rows_ahead, first + rows_ahead + 4, dim);
  const FourRows<T> four(data, rows, first, factors);
  if (factors == nullptr) {
    TransposeFour(four.rows, {NoFactor(), NoFactor(), NoFactor(), NoFactor()}, dim, out, out_stride,
                  finite);
  } else {
    TransposeFour(four.rows, four.factors, dim, out, out_stride, finite);
  }
  if (four.missing > 0) ClearColumns(out, out_stride, dim, 4 - four.missing);
}

inline bool PackStrips(const InputRows& rows, Index dim, const double* factors,
                       float* out) noexcept {
  return Dispatch(rows.data, rows.type, [&](const auto* data) {
    FiniteCheck finite;
    for (Index s = 0; s * strip < rows.count; ++s) {
      PackFour(data, rows, s * strip, dim, factors, out + s * strip * dim, strip, finite);
    }
    return finite.Finite();
  });
}

inline bool PackPanels(const InputRows& rows, Index dim, float* out) noexcept {
  return Dispatch(rows.data, rows.type, [&](const auto* data) {
    FiniteCheck finite;
    for (Index first = 0; first < tile; first += panel_columns) {
      const Index width = std::min(panel_columns, tile - first);
      for (Index key = first; key < first + width; key += 4) {
        float* to = out + first * dim + key - first;
        if (key < rows.count) {
          PackFour(data, rows, key, dim, nullptr, to, width, finite);
        } else {
          ClearColumns(to, width, dim, 0);
        }
      }
    }
    return finite.Finite();
  });
}

HWY_INLINE void ClearRow(Index width, Index r, float* out) {
  for (Index first = 0; first < width; first += panel_columns) {
    const Index columns = std::min(panel_columns, width - first);
    std::memset(out + first * tile + r * columns, 0,
                static_cast<std::size_t>(columns) * sizeof(float));
  }
}

/// `present` numbers of one row and zeros up to `columns`.
template <class T, class F>
HWY_INLINE void PackRow(const T* row, Index present, Index columns, F factor, float* to,
                        FiniteCheck& finite) {
  const FiniteCheck::D4 d;
  constexpr Index step = hn::MaxLanes(FiniteCheck::D4());
  Index c = 0;
  for (; c + step <= present; c += step) {
    const auto x = factor.Times(LoadFloats(d, row + c));
    finite.See(x);
    hn::StoreU(x, d, to + c);
  }
  for (; c < present; ++c) {
    to[c] = factor.Times(static_cast<float>(row[c]));
    finite.See(to[c]);
  }
  for (; c < columns; ++c) to[c] = 0;
}

/// The same in whole vectors and without a factor.
template <class T>
HWY_INLINE void CopyRow(const T* row, Index present, Index columns, float* to, VF& finite) {
  const DF d;
  Index c = 0;
  for (; c + lane_count <= present; c += lane_count) {
    const VF x = LoadFloats(d, row + c);
    finite = hn::Add(finite, hn::Sub(x, x));
    hn::StoreU(x, d, to + c);
  }
  if (c == columns) return;
  float rest[lane_count] = {};
  for (Index i = c; i < present; ++i) rest[i - c] = static_cast<float>(row[i]);
  const VF x = hn::LoadU(d, rest);
  finite = hn::Add(finite, hn::Sub(x, x));
  hn::StoreU(x, d, to + c);
}

inline bool PackRows(const InputRows& rows, Index dim, const double* factors, float* out) noexcept {
  const Index width = (dim + lane_count - 1) / lane_count * lane_count;
  for (Index r = rows.count; r < tile; ++r) ClearRow(width, r, out);
  return Dispatch(rows.data, rows.type, [&](const auto* data) {
    FiniteCheck finite;
    VF all_finite = hn::Zero(DF());
    for (Index first = 0; first < width; first += panel_columns) {
      const Index columns = std::min(panel_columns, width - first);
      const Index present = std::min(columns, dim - first);
      for (Index r = 0; r < rows.count; ++r) {
        if (first == 0) PrefetchRows(data, rows, r + rows_ahead, r + rows_ahead + 1, dim);
        const auto* row = RowOf(data, rows, r) + first;
        float* to = out + first * tile + r * columns;
        if (factors == nullptr) {
          CopyRow(row, present, columns, to, all_finite);
        } else {
          PackRow(row, present, columns, Factor(factors[r]), to, finite);
        }
      }
    }
    return finite.Finite() && hn::AllTrue(DF(), hn::Eq(all_finite, hn::Zero(DF())));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
