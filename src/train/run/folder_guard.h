#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/io/file_lock.h"
#include "rapt/models/train.h"

namespace rapt::detail {

/// A run inside its own data would train on its own files, and find other data when it resumes.
/// Throws std::invalid_argument if it is.
void check_apart(const DataOptions& data, const std::string& folder);

/// Throws FolderNotEmpty if the folder holds no run, but a file that a run would write over.
void check_free(const std::string& folder);

/// The lock of a run's folder, and what the run makes there before it is sure to begin: that is
/// removed again, unless keep() was called. What is new is decided while the lock is held, and
/// removed before it is released, so it is never a file of another run.
class FolderGuard {
 public:
  /// Makes the folder and takes the lock. Throws if another process has it.
  explicit FolderGuard(const std::string& folder);
  FolderGuard(const FolderGuard&) = delete;
  FolderGuard& operator=(const FolderGuard&) = delete;
  ~FolderGuard();

  void keep() { kept_ = true; }

 private:
  void make_folder();
  void take_away();

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> new_folders_;  // the innermost first
  std::vector<std::filesystem::path> new_files_;    // what a run makes before it is sure to begin
  std::optional<FileLock> lock_;
  bool kept_ = false;
};

}  // namespace rapt::detail
