// Packing: rows of the caller's memory into the layouts the products read. Each number is read once
// and written once.
#if defined(RAPT_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_PACK_INL_H
#undef RAPT_PACK_INL_H
#else
#define RAPT_PACK_INL_H
#endif

#include <cstring>

#include "base/sizes.h"
#include "kernels/common/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// In place of rows that are not there.
template <class T>
inline constexpr T no_numbers[max_dim] = {};

template <class T>
HWY_INLINE const T* RowOf(const T* data, const InputRows& rows, Index r) {
  if (rows.order == nullptr) return data + r * rows.stride;
  return rows.order[r] < 0 ? no_numbers<T> : data + rows.order[r] * rows.stride;
}

/// Prefetches rows that are in no order shortly before they are read.
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
inline constexpr Index prefetch_rows = 8;

/// Rows first .. first + n - 1 with their factors; those that are not there are zeros.
template <class T, class F, Index n>
struct SomeRows {
  const T* rows[n];
  F factors[n];
  HWY_INLINE SomeRows(const T* data, const InputRows& input, Index first, const double* factor) {
    for (Index i = 0; i < n; ++i) {
      const bool there = first + i < input.count;
      rows[i] = there ? RowOf(data, input, first + i) : no_numbers<T>;
      if (there && factor != nullptr) factors[i] = F(factor[first + i]);
    }
  }
};

template <class F, class T>
HWY_INLINE void PackStripsOf(const T* data, const InputRows& rows, Index dim, const double* factors,
                             float* out, FiniteCheck& finite) {
  for (Index first = 0; first < rows.count; first += strip) {
    PrefetchRows(data, rows, first + prefetch_rows, first + prefetch_rows + strip, dim);
    const SomeRows<T, F, strip> four(data, rows, first, factors);
    float* to = out + first * dim;
    const Index done = TransposeStrip(four.rows, four.factors, dim, to, finite);
    TransposeFour(four.rows, four.factors, done, dim, to, strip, finite);
  }
}

inline bool PackStrips(const InputRows& rows, Index dim, const double* factors,
                       float* out) noexcept {
  return Dispatch(rows.data, rows.type, [&](const auto* data) {
    FiniteCheck finite;
    if (factors == nullptr) {
      PackStripsOf<NoFactor>(data, rows, dim, factors, out, finite);
    } else {
      PackStripsOf<Factor>(data, rows, dim, factors, out, finite);
    }
    return finite.Finite();
  });
}

/// Rows that are transposed together.
inline constexpr Index square_rows = std::max<Index>(lane_count, 4);

template <class F, class T>
HWY_INLINE void PackPanelsOf(const T* data, const InputRows& rows, Index dim, const double* factors,
                             float* out, FiniteCheck& finite) {
  for (Index key = 0; key < tile; key += square_rows) {
    const Index first = key / panel_columns * panel_columns;  // of the panel
    const Index width = std::min(panel_columns, tile - first);
    PrefetchRows(data, rows, key + square_rows, key + 2 * square_rows, dim);
    const SomeRows<T, F, square_rows> some(data, rows, key, factors);
    float* to = out + first * dim + key - first;
    const Index done = TransposeSquares(some.rows, some.factors, dim, to, width, finite);
    for (Index i = 0; i < square_rows; i += 4)
      TransposeFour(some.rows + i, some.factors + i, done, dim, to + i, width, finite);
  }
}

inline bool PackPanels(const InputRows& rows, Index dim, const double* factors,
                       float* out) noexcept {
  return Dispatch(rows.data, rows.type, [&](const auto* data) {
    FiniteCheck finite;
    if (factors == nullptr) {
      PackPanelsOf<NoFactor>(data, rows, dim, factors, out, finite);
    } else {
      PackPanelsOf<Factor>(data, rows, dim, factors, out, finite);
    }
    return finite.Finite();
  });
}

HWY_INLINE void ClearRow(Index width, Index r, float* out) {
  for (Index first = 0; first < width; first += panel_columns) {
    const Index columns = std::min(panel_columns, width - first);
    std::memset(out + first * tile + r * columns, 0, to_size(columns) * sizeof(float));
  }
}

/// `present` numbers of one row, times a factor, and zeros up to `columns`, in whole vectors.
template <class T, class F>
HWY_INLINE void PackRow(const T* row, Index present, Index columns, const F& factor, float* to,
                        FiniteCheck& finite) {
  const DF d;
  Index c = 0;
  for (; c + lane_count <= present; c += lane_count) {
    const VF x = factor.Times(d, LoadFloats(d, row + c));
    finite.See(d, x);
    hn::StoreU(x, d, to + c);
  }
  if (c == columns) return;
  float rest[lane_count] = {};
  for (Index i = c; i < present; ++i) rest[i - c] = static_cast<float>(row[i]);
  const VF x = factor.Times(d, hn::LoadU(d, rest));
  finite.See(d, x);
  hn::StoreU(x, d, to + c);
}

inline bool PackRows(const InputRows& rows, Index dim, const double* factors, float* out) noexcept {
  const Index width = (dim + lane_count - 1) / lane_count * lane_count;
  for (Index r = rows.count; r < tile; ++r) ClearRow(width, r, out);
  return Dispatch(rows.data, rows.type, [&](const auto* data) {
    FiniteCheck finite;
    for (Index first = 0; first < width; first += panel_columns) {
      const Index columns = std::min(panel_columns, width - first);
      const Index present = std::min(columns, dim - first);
      for (Index r = 0; r < rows.count; ++r) {
        if (first == 0) PrefetchRows(data, rows, r + prefetch_rows, r + prefetch_rows + 1, dim);
        const auto* row = RowOf(data, rows, r) + first;
        float* to = out + first * tile + r * columns;
        if (factors == nullptr) {
          PackRow(row, present, columns, NoFactor(), to, finite);
        } else {
          PackRow(row, present, columns, Factor(factors[r]), to, finite);
        }
      }
    }
    return finite.Finite();
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
