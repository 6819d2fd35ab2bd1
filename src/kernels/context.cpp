#include "kernels/context.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <mutex>

#include "base/check.h"

namespace rapt {
using namespace detail;
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Index threads_from(const std::string& text) {
  if (text.empty()) return std::min(usable_cpus(), Threads::max_count);
  Index threads = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, threads);
  check(error == std::errc() && stop == end && 1 <= threads && threads <= Threads::max_count,
        "RAPT_THREADS is \"", text, "\", expected a number from 1 to ", Threads::max_count);
  return threads;
}

bool same_letter(char a, char b) { return std::tolower(a) == std::tolower(b); }

const Kernels& kernels_named(std::string_view isa, const char* where) {
  const Kernels* kernels = nullptr;
  for (const Kernels* known : supported_kernels()) {
    const std::string_view name = known->name;
    if (std::equal(name.begin(), name.end(), isa.begin(), isa.end(), same_letter)) kernels = known;
  }
  check(kernels != nullptr, where, ": instruction set \"", isa,
        "\" is not available here, expected one of ", joined(supported_isas()));
  return *kernels;
}

const Kernels& kernels_from(const std::string& text) {
  return text.empty() ? *supported_kernels().front() : kernels_named(text, "RAPT_ISA");
}

/// One impl for all default contexts, so that `attend(q, k, v)` in a loop starts no threads again.
std::shared_ptr<Context::Impl> default_impl() {
  static std::mutex mutex;
  static std::shared_ptr<Context::Impl> impl;
  static std::string made_from;
  const std::string threads = environment("RAPT_THREADS");
  const std::string isa = environment("RAPT_ISA");
  const std::lock_guard lock(mutex);
  const std::string wanted = threads + "\n" + isa;
  if (!impl || made_from != wanted) {
    impl = std::make_shared<Context::Impl>(threads_from(threads), kernels_from(isa));
    made_from = wanted;
  }
  return impl;
}

std::shared_ptr<Context::Impl> impl_for(std::optional<Index> threads,
                                        std::optional<std::string_view> isa) {
  check(threads.value_or(1) > 0, "context: ", threads.value_or(1),
        " threads given, expected 1 or more; absent: the default");
  if (!threads && !isa) return default_impl();
  const Kernels& kernels =
      isa ? kernels_named(*isa, "context") : kernels_from(environment("RAPT_ISA"));
  return std::make_shared<Context::Impl>(
      threads ? *threads : threads_from(environment("RAPT_THREADS")), kernels);
}

}  // namespace

Context::Context() : impl_(default_impl()) {}
Context::Context(std::optional<Index> threads, std::optional<std::string_view> isa)
    : impl_(impl_for(threads, isa)) {}

Index Context::threads() const { return impl_->threads.count(); }
const std::string& Context::isa() const { return impl_->isa_name; }

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const Kernels* kernels : supported_kernels()) names.emplace_back(kernels->name);
  return names;
}

}  // namespace rapt
