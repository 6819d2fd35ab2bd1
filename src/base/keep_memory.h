#pragma once

#include <cstddef>

namespace rapt::detail {

/// While it lives, released blocks are kept for the next ones up to `bytes` in all: a training step
/// needs the memory of the step before again, and fresh pages cost up to a tenth of it. The largest
/// `bytes` of all living objects counts; the last one returns the surplus to the system.
class KeepMemory {
 public:
  explicit KeepMemory(std::size_t bytes);
  ~KeepMemory();
  KeepMemory(const KeepMemory&) = delete;
  KeepMemory& operator=(const KeepMemory&) = delete;

 private:
  std::size_t before_;
};

}  // namespace rapt::detail
