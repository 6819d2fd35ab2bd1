#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace rapt::detail {

/// While it lives, this thread flushes subnormal numbers to zero, rounds to nearest and traps on
/// nothing. The word it found, sticky exception flags included, comes back in the destructor.
class FlushDenormals {
 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

#if defined(__x86_64__)
  FlushDenormals() : control_(_mm_getcsr()) {
    _mm_setcsr(flush_to_zero | zero_inputs | all_masked);
  }
  ~FlushDenormals() { _mm_setcsr(control_); }

 private:
  static constexpr unsigned flush_to_zero = 0x8000;
  static constexpr unsigned zero_inputs = 0x0040;
  static constexpr unsigned all_masked = 0x1f80;
  unsigned control_;
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(control_));
    asm volatile("mrs %0, fpsr" : "=r"(flags_));
    const std::uint64_t flush_to_zero = std::uint64_t{1} << 24;
    asm volatile("msr fpcr, %0" : : "r"(flush_to_zero) : "memory");
  }
  ~FlushDenormals() {
    asm volatile("msr fpcr, %0" : : "r"(control_) : "memory");
    asm volatile("msr fpsr, %0" : : "r"(flags_) : "memory");
  }

 private:
  std::uint64_t control_ = 0;
  std::uint64_t flags_ = 0;
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
};

}  // namespace rapt::detail
