#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace rapt::fuzz {

/// A file in memory, for readers that open paths: no disk access.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("rapt-fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("memfd_create failed");
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  /// The path of a file with these bytes, until the next call.
  const std::string& with(std::string_view bytes) {
    // In this order its pages stay, and are not allocated again for each input.
    if (pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()) ||
        ftruncate(descriptor_, static_cast<off_t>(bytes.size())) != 0)
      throw std::runtime_error("a file in memory cannot be written");
    return path_;
  }

 private:
  int descriptor_;
  std::string path_;
};

/// The one that targets share.
inline const std::string& in_memory(std::string_view bytes) {
  static MemoryFile file;
  return file.with(bytes);
}

}  // namespace rapt::fuzz
