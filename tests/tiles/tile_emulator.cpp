// AMX in software: on a CPU without it every tile instruction raises SIGILL, and the handler does
// what the instruction would have done and continues after it. So the code that is written for the
// tile unit runs, slowly, wherever AVX512-BF16 is, which every CPU with AMX has too.
#include "tiles/tile_emulator.h"

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu_features.h"

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>
#include <ucontext.h>
#include <unistd.h>
#include <csignal>
#endif

namespace rapt::test {
using namespace detail;
namespace {

struct Counts {
  std::atomic<Index> configurations{0}, releases{0}, loads{0}, stores{0}, products{0};
};
Counts counts;

#if defined(__x86_64__) && defined(__linux__)

constexpr int tile_count = 8, most_rows = 16, row_words = 16;

struct Tile {
  int rows = 0, row_bytes = 0;
  alignas(64) std::uint32_t words[most_rows][row_words];
};

struct TileUnit {
  bool configured = false;
  Tile tiles[tile_count];
};
thread_local TileUnit unit;  // of a program and not of a library: a handler may look at it

[[noreturn]] void die(const char* why) {
  constexpr const char* who = "tile emulator: ";
  (void)!write(2, who, std::strlen(who));
  (void)!write(2, why, std::strlen(why));
  (void)!write(2, "\n", 1);
  std::_Exit(70);
}

/// One instruction with a three-byte VEX prefix and the fields that tile instructions use.
struct Instruction {
  int map, prefix, opcode, mode, reg, rm, other;
  const std::uint8_t* address;  // of memory, without what the index adds
  std::int64_t index;           // times its scale
  Index bytes;                  // the instruction's length
};

std::int64_t general_register(const ucontext_t& context, int number) {
  constexpr int places[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
  return context.uc_mcontext.gregs[places[number]];
}

template <class Integer>
Integer read_at(const std::uint8_t* at) {
  Integer value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Fills in where memory is; `at` is behind the ModRM byte.
void read_address(const ucontext_t& context, const std::uint8_t* start, const std::uint8_t* at,
                  int more_base, int more_index, Instruction& x) {
  std::int64_t base = 0;
  bool wide = x.mode == 2;
  bool from_here = false;
  if ((x.rm & 7) == 4) {
    const int sib = *at++;
    const int index = (sib >> 3 & 7) | more_index;
    if (index != 4) x.index = general_register(context, index) << (sib >> 6);
    if ((sib & 7) == 5 && x.mode == 0) {
      wide = true;
    } else {
      base = general_register(context, (sib & 7) | more_base);
    }
  } else if ((x.rm & 7) == 5 && x.mode == 0) {
    wide = from_here = true;
  } else {
    base = general_register(context, (x.rm & 7) | more_base);
  }
  std::int64_t offset = 0;
  if (wide) {
    offset = read_at<std::int32_t>(at);
    at += 4;
  } else if (x.mode == 1) {
    offset = read_at<std::int8_t>(at);
    at += 1;
  }
  x.bytes = at - start;
  if (from_here) base = reinterpret_cast<std::int64_t>(at);
  x.address = reinterpret_cast<const std::uint8_t*>(base + offset);
}

/// False if it has no such prefix.
bool read_instruction(const ucontext_t& context, Instruction& x) {
  const auto* at = reinterpret_cast<const std::uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  if (at[0] != 0xC4) return false;
  const int extensions = ~at[1];
  x.map = at[1] & 31;
  x.prefix = at[2] & 3;
  x.other = ~at[2] >> 3 & 15;
  x.opcode = at[3];
  x.mode = at[4] >> 6;
  x.reg = (at[4] >> 3 & 7) | (extensions >> 4 & 8);
  x.rm = at[4] & 7;
  x.index = 0;
  x.bytes = 5;
  if (x.mode != 3) read_address(context, at, at + 5, extensions >> 2 & 8, extensions >> 3 & 8, x);
  return true;
}

void configure(const std::uint8_t* from) {
  if (from[0] != 1) die("a palette other than 1");
  for (int t = 0; t < tile_count; ++t) {
    unit.tiles[t].row_bytes = read_at<std::uint16_t>(from + 16 + 2 * t);
    unit.tiles[t].rows = from[48 + t];
    if (unit.tiles[t].row_bytes > 64 || unit.tiles[t].rows > most_rows)
      die("a tile is configured larger than it is");
    std::memset(unit.tiles[t].words, 0, sizeof unit.tiles[t].words);
  }
  unit.configured = true;
}

Tile& tile_named(int number) {
  if (!unit.configured) die("a tile is used by a thread that has not configured it");
  if (number >= tile_count) die("a tile that does not exist");
  return unit.tiles[number];
}

/// Rows elsewhere are right, but cost six times as much.
void check_rows(const std::uint8_t* first, std::int64_t stride) {
  if ((reinterpret_cast<std::uintptr_t>(first) | static_cast<std::uintptr_t>(stride)) % 64 != 0)
    die("a row of a tile is not aligned to 64 bytes");
}

void load(Tile& to, const std::uint8_t* from, std::int64_t stride) {
  check_rows(from, stride);
  std::memset(to.words, 0, sizeof to.words);
  for (int r = 0; r < to.rows; ++r)
    std::memcpy(to.words[r], from + r * stride, static_cast<std::size_t>(to.row_bytes));
}

void store(const Tile& from, std::uint8_t* to, std::int64_t stride) {
  check_rows(to, stride);
  for (int r = 0; r < from.rows; ++r)
    std::memcpy(to + r * stride, from.words[r], static_cast<std::size_t>(from.row_bytes));
}

float low_number(std::uint32_t word) { return std::bit_cast<float>(word << 16); }
float high_number(std::uint32_t word) { return std::bit_cast<float>(word & 0xFFFF0000u); }

/// Even and odd terms are summed apart, then together, then added to what was there; numbers below
/// the normal ones are zero on the way in and out, whatever the thread has set.
__attribute__((target("avx2,fma"), optimize("O3"))) void multiply(Tile& sum, const Tile& left,
                                                                  const Tile& right) {
  if (left.row_bytes / 4 != right.rows || sum.rows != left.rows || sum.row_bytes != right.row_bytes)
    die("tiles whose sizes do not fit are multiplied");
  _mm_setcsr(0x9FC0);
  for (int r = 0; r < sum.rows; ++r) {
    alignas(64) float even[row_words] = {}, odd[row_words] = {};
    for (int k = 0; k < right.rows; ++k) {
      const float first = low_number(left.words[r][k]), second = high_number(left.words[r][k]);
      for (int c = 0; c < row_words; ++c) {
        even[c] = __builtin_fmaf(first, low_number(right.words[k][c]), even[c]);
        odd[c] = __builtin_fmaf(second, high_number(right.words[k][c]), odd[c]);
      }
    }
    for (int c = 0; c < sum.row_bytes / 4; ++c) {
      const float old = std::bit_cast<float>(sum.words[r][c]);
      sum.words[r][c] = std::bit_cast<std::uint32_t>(old + (even[c] + odd[c]));
    }
  }
}

enum Prefix { none, x66, xF3, xF2 };

/// False if it is no tile instruction.
bool run(const Instruction& x) {
  if (x.map != 2) return false;
  auto* memory = const_cast<std::uint8_t*>(x.address);
  if (x.opcode == 0x49 && x.prefix == none && x.mode == 3) {
    if (!unit.configured) die("tiles are released that were not configured");
    unit.configured = false;
    ++counts.releases;
  } else if (x.opcode == 0x49 && x.prefix == none) {
    configure(memory + x.index);
    ++counts.configurations;
  } else if (x.opcode == 0x49 && x.prefix == xF2 && x.mode == 3) {
    Tile& zeroed = tile_named(x.reg);
    std::memset(zeroed.words, 0, sizeof zeroed.words);
  } else if (x.opcode == 0x4B && x.prefix == xF2) {
    load(tile_named(x.reg), memory, x.index);
    ++counts.loads;
  } else if (x.opcode == 0x4B && x.prefix == xF3) {
    store(tile_named(x.reg), memory, x.index);
    ++counts.stores;
  } else if (x.opcode == 0x5C && x.prefix == xF3 && x.mode == 3) {
    multiply(tile_named(x.reg), tile_named(x.rm), tile_named(x.other));
    ++counts.products;
  } else {
    return false;
  }
  return true;
}

void on_illegal_instruction(int, siginfo_t*, void* data) {
  auto& context = *static_cast<ucontext_t*>(data);
  Instruction instruction{};
  if (read_instruction(context, instruction) && run(instruction)) {
    context.uc_mcontext.gregs[REG_RIP] += instruction.bytes;
    return;
  }
  std::signal(SIGILL, SIG_DFL);  // not ours: it happens again, and ends the program
}

const char* install() {
  if (!has_avx512_bf16()) return "this CPU has no AVX512-BF16";
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  return sigaction(SIGILL, &action, nullptr) == 0 ? "" : "SIGILL cannot be handled";
}

#else

const char* install() { return "tiles are emulated on x86-64 Linux only"; }

#endif

}  // namespace

TileCounts tile_counts() {
  return {counts.configurations, counts.releases, counts.loads, counts.stores, counts.products};
}

const char* why_no_emulation() {
  static const char* const why = install();
  return why;
}

}  // namespace rapt::test

namespace rapt::detail {

/// In place of the library's: says that there is a tile unit where one is emulated.
const Amx& amx() {
  static const Amx found{*test::why_no_emulation() == '\0', test::why_no_emulation()};
  return found;
}

}  // namespace rapt::detail
