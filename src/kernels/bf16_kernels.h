#pragma once

#include "base/sizes.h"
#include "kernels/kernels.h"

namespace rapt::detail {

/// Rows of one block of a product.
inline constexpr Index block_rows = 16;

/// The inner loops over bf16 operands, for AMX and AVX512-BF16.
struct Bf16Kernels {
  const char* engine;

  /// Between the two this thread may call the products: Bf16Session.
  void (*begin)() noexcept;
  void (*end)() noexcept;

  TileKernels<Bf16> tiles;
  /// Numbers of other types are rounded as they are packed, to nearest, ties to even.
  MatrixKernels<Bf16> matrix;
  double (*peak_loop)(Index iterations) noexcept;  // flops done
};

/// The kernels that multiply numbers of type T; Bf16 only if kernels.has_bf16().
template <class T>
const TileKernels<T>& tile_kernels(const Kernels& kernels);
template <class T>
const MatrixKernels<T>& matrix_kernels(const Kernels& kernels);

template <>
inline const TileKernels<float>& tile_kernels(const Kernels& kernels) {
  return kernels.tiles;
}
template <>
inline const TileKernels<Bf16>& tile_kernels(const Kernels& kernels) {
  return kernels.bf16->tiles;
}
template <>
inline const MatrixKernels<float>& matrix_kernels(const Kernels& kernels) {
  return kernels.matrix;
}
template <>
inline const MatrixKernels<Bf16>& matrix_kernels(const Kernels& kernels) {
  return kernels.bf16->matrix;
}

/// A dimension as depth of a packed product, and as width of packed rows.
template <class T>
Index packed_depth(const Kernels& kernels, Index dim) {
  return round_up(dim, tile_kernels<T>(kernels).depth_unit);
}
template <class T>
Index packed_width(const Kernels& kernels, Index dim) {
  return round_up(dim, tile_kernels<T>(kernels).width_unit);
}

/// While it lives, this thread may call the products of type T.
template <class T>
class ProductSession {
 public:
  explicit ProductSession(const Kernels&) {}
};

template <>
class ProductSession<Bf16> {
 public:
  explicit ProductSession(const Kernels& kernels) : bf16_(*kernels.bf16) { bf16_.begin(); }
  ~ProductSession() { bf16_.end(); }
  ProductSession(const ProductSession&) = delete;
  ProductSession& operator=(const ProductSession&) = delete;

 private:
  const Bf16Kernels& bf16_;
};

enum class Bf16Engine { amx, avx512, portable };

/// Null if this CPU cannot run it. The portable one runs anywhere, slower than f32 products: it
/// tests the code around the other two.
const Bf16Kernels* bf16_kernels_of(Bf16Engine engine);

/// Rotary positions for CPUs with an instruction that rounds to bf16; null: not this one.
const RopeKernels* bf16_rope_kernels();

}  // namespace rapt::detail
