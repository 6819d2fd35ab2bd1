#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/io/file_lock.h"

namespace rapt::detail {

/// A folder that appears when it is complete: until then it is WANTED.part-XXXXXX next to the
/// wanted one, and is removed with the object.
///
/// A lock file in it shows its owner. A killed process leaves its folder behind; the next one that
/// writes to the same place removes it. Folders without a lock file, or with one that is held or
/// has other contents, are never touched.
class NewFolder {
 public:
  explicit NewFolder(const std::string& wanted);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();

  std::string path() const { return path_.string(); }
  void finish();

 private:
  std::filesystem::path wanted_, path_;
  std::optional<FileLock> lock_;
};

}  // namespace rapt::detail
