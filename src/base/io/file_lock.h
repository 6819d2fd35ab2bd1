#pragma once

#include <string>

namespace rapt::detail {

/// A file that at most one process holds at a time. The hold ends with the object or with the
/// process, however it dies; the file stays.
class FileLock {
 public:
  /// Throws std::runtime_error at once, naming the process, if another one holds it; and if the
  /// path is a symbolic link, no regular file, or a file that holds anything but the number of a
  /// process. None of these is written to.
  explicit FileLock(const std::string& path);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  int descriptor_ = -1;
};

}  // namespace rapt::detail
