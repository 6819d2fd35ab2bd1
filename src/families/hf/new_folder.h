#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/io/lock.h"

namespace rapt {

/// A folder that appears when it is finished: until then it is WANTED.part-XXXXXX beside the wanted
/// one, and goes away with the object.
///
/// A lock file in it tells whose it is. A process that is killed leaves its folder behind; the next
/// one that writes to the same place removes it. Folders without such a file, with one that is held
/// or with one of other contents are never touched.
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

}  // namespace rapt
