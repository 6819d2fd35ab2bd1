#pragma once

#include <string>

#include "rapt/tensor.h"

namespace rapt::detail {

/// Whether this process may use AMX. The permission is requested once.
struct Amx {
  bool usable;
  std::string why_not;  // "" if usable
};
const Amx& amx();

/// Whether this CPU multiplies bf16 in its vectors (AVX512-BF16).
bool has_avx512_bf16();
/// Whether those products are faster than f32 multiply-adds over the same numbers: AMD's are twice
/// as fast, Intel's half as fast.
bool avx512_bf16_pays();

/// Whether this CPU multiplies int8 in its vectors (AVX512-VNNI).
bool has_avx512_vnni();

#if defined(__x86_64__)

/// The eight tile registers, each 16 rows of 64 bytes. Written as assembly: GCC 12 drops parts of
/// the configuration that it does not see being read.
struct Tiles {
  static void configure() noexcept;
  static void release() noexcept { asm volatile("tilerelease"); }

  template <int t>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(t));
  }
  /// Rows are `stride` bytes apart, each aligned to 64 bytes: others cost six times as much.
  template <int t>
  static void load(const void* from, Index stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(t) : "memory");
  }
  template <int t>
  static void store(void* to, Index stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(t) : "memory");
  }
  /// sum[16][16] += left[16][32] right[16][16][2] in bf16, summed in f32.
  template <int sum, int left, int right>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(left), "i"(right));
  }
};

#endif

}  // namespace rapt::detail
