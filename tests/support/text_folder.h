#pragma once

#include <filesystem>

#include "support/temporary_folder.h"

namespace rapt::test {

/// A temporary folder of texts.
class TextFolder : public TemporaryFolder {
 public:
  /// Writes a file, with the folders above it, and returns its path.
  std::string write(const std::string& name, std::string_view text) const {
    const std::string file = *this / name;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    put(file, text);
    return file;
  }
};

}  // namespace rapt::test
