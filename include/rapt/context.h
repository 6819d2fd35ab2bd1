#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/tensor.h"

namespace rapt {

/// Where a call runs: how many threads, which instruction set. Cheap to copy; copies share their
/// threads.
///
/// Results do not depend on the number of threads, bit for bit. A call throws std::system_error if
/// the system refuses threads.
class RAPT_API Context {
 public:
  /// The defaults of the process: RAPT_THREADS or the CPUs this process may use, RAPT_ISA or the
  /// best this CPU has. Throws std::invalid_argument if either variable is not understood.
  Context();
  /// What is absent is as the defaults say.
  /// Throws std::invalid_argument if threads is below 1 or this CPU cannot run `isa`.
  explicit Context(std::optional<Index> threads, std::optional<std::string_view> isa = {});

  Index threads() const;
  const std::string& isa() const;

  struct Impl;

 private:
  friend struct detail::Access;
  std::shared_ptr<Impl> impl_;
};

/// Instruction sets this build has and this CPU can run, best first.
RAPT_API std::vector<std::string> supported_isas();

/// CPUs this process may use: affinity mask and cgroup quota, at least 1.
RAPT_API Index usable_cpus();

/// "0.2.0"
RAPT_API std::string version();

}  // namespace rapt
