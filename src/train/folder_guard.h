#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rapt/train.h"

namespace rapt {

/// A run within its own data would learn from its own files, and find other data when it goes on.
/// Throws std::invalid_argument if it is.
void check_apart(const DataOptions& data, const std::string& folder);

/// Throws std::invalid_argument if the folder holds no run, but a file that a run would write over.
void check_free(const std::string& folder);

/// A run that never begins leaves its folder as it was: what it has made there until then is taken
/// away again, unless keep() was called.
class FolderGuard {
 public:
  explicit FolderGuard(const std::string& folder);
  FolderGuard(const FolderGuard&) = delete;
  FolderGuard& operator=(const FolderGuard&) = delete;
  ~FolderGuard();

  void keep() { kept_ = true; }

 private:
  void take_away() const;

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> new_folders_;  // the innermost first
  std::vector<std::filesystem::path> new_files_;    // what a run makes before it is sure to begin
  bool kept_ = false;
};

}  // namespace rapt
