// The driver of one target, RAPT_FUZZ_TARGET, for libFuzzer.
//
//   fuzz_TARGET --seeds FOLDER   writes good inputs and a dictionary, FOLDER.dict, and ends
//   fuzz_TARGET ...              as libFuzzer's own --help says
#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fuzz/target.h"

namespace {

const rapt::fuzz::Target& target = rapt::fuzz::RAPT_FUZZ_TARGET;

bool counting = false;
long long in_use = 0, peak = 0, floor_bytes = 0;

void on_malloc(const volatile void*, std::size_t bytes) {
  if (!counting) return;
  in_use += static_cast<long long>(bytes);
  peak = std::max(peak, in_use);
}
void on_free(const volatile void* memory) {
  if (!counting || memory == nullptr) return;
  const void* block = const_cast<const void*>(memory);
  if (__sanitizer_get_ownership(block))
    in_use -= static_cast<long long>(__sanitizer_get_allocated_size(block));
}

/// Opens an input and gives what is left to do; the most memory that took is in `peak`.
std::function<void()> opened(std::string_view input) {
  in_use = peak = 0;
  counting = true;
  try {
    std::function<void()> rest = target.open(input);
    counting = false;
    return rest;
  } catch (const std::runtime_error&) {
    counting = false;
    return rapt::fuzz::nothing_more();
  }
}

void finish(const std::function<void()>& rest) {
  try {
    rest();
  } catch (const std::runtime_error&) {
    return;  // refused later
  }
}

void write_seeds(const std::string& folder) {
  std::filesystem::create_directories(folder);
  int count = 0;
  for (const std::string& seed : target.seeds())
    std::ofstream(folder + "/seed-" + std::to_string(count++), std::ios::binary) << seed;
  std::ofstream words(folder + ".dict");
  for (const std::string& word : target.words()) {
    words << '"';
    for (const char letter : word) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02X", static_cast<unsigned char>(letter));
      words << code;
    }
    words << "\"\n";
  }
}

}  // namespace

/// Parsers allocate a lot and for a short time. An input frees far less than the memory that is
/// kept back here to notice its use after that; with the 256 MB that are usual every allocation
/// misses the caches. Where memory came from is told by fewer callers.
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=16:malloc_context_size=6";
}

extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {
  if (*count == 3 && std::string_view((*words)[1]) == "--seeds") {
    write_seeds((*words)[2]);
    std::exit(0);
  }
  __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  for (const std::string& seed : target.seeds()) {
    finish(opened(seed));  // tables that are made once
    opened(seed);
    floor_bytes = std::max(floor_bytes, peak + (1 << 16) + target.extra_bytes);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::function<void()> rest = opened({reinterpret_cast<const char*>(data), size});
  if (peak > 4 * static_cast<long long>(size) + floor_bytes) {
    std::fprintf(stderr, "%lld bytes of memory for an input of %zu\n", peak, size);
    std::abort();
  }
  finish(rest);
  return 0;
}
