#include "kernels/cpu_features.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#endif

namespace rapt::detail {
namespace {

#if defined(__x86_64__) && defined(__linux__)

std::uint64_t enabled_state() {
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

/// Asks leaf 7 and the system. The leaves that describe the tiles are not read: some hypervisors
/// hide them.
std::string why_not() {
  constexpr unsigned osxsave = 1u << 27, tiles = 1u << 24, bf16_products = 1u << 22;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & osxsave) == 0) return "this CPU has no AMX";
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & tiles) == 0) return "this CPU has no AMX";
  if ((d & bf16_products) == 0) return "this CPU's AMX has no bf16 products";
  constexpr std::uint64_t tile_state = 3u << 17;
  if ((enabled_state() & tile_state) != tile_state)
    return "the system does not keep the state of AMX tiles";
  constexpr int request_permission = 0x1023, tile_data = 18;
  if (syscall(SYS_arch_prctl, request_permission, tile_data) != 0)
    return std::string("the system refused permission to use AMX: ") + std::strerror(errno);
  return "";
}

bool find_avx512_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5) != 0;
}

/// By name: a measurement would not come out the same in every process, and results depend on it.
bool made_by_amd() {
  unsigned a = 0, name[3] = {};
  if (!__get_cpuid(0, &a, &name[0], &name[2], &name[1])) return false;
  return std::memcmp(name, "AuthenticAMD", sizeof name) == 0;
}

bool find_avx512_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & 1u << 11) != 0;
}

#else

bool find_avx512_bf16() { return false; }
bool made_by_amd() { return false; }
bool find_avx512_vnni() { return false; }
std::string why_not() { return "AMX is used on x86-64 Linux only"; }

#endif

}  // namespace

/// Weak: the tests put an emulated unit in its place.
[[gnu::weak]] const Amx& amx() {
  static const Amx found = [] {
    const std::string reason = why_not();
    return Amx{reason.empty(), reason};
  }();
  return found;
}

bool has_avx512_bf16() {
  static const bool found = find_avx512_bf16();
  return found;
}

bool avx512_bf16_pays() {
  static const bool pays = has_avx512_bf16() && made_by_amd();
  return pays;
}

bool has_avx512_vnni() {
  static const bool found = find_avx512_vnni();
  return found;
}

#if defined(__x86_64__)

namespace {

struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);

constexpr TileConfiguration whole_tiles;

}  // namespace

void Tiles::configure() noexcept { asm volatile("ldtilecfg %0" : : "m"(whole_tiles)); }

#endif

}  // namespace rapt::detail
