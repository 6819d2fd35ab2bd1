#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "base/io/files.h"
#include "formats/config/json.h"

namespace rapt::detail {

/// What a checkpoint consists of.
struct Manifest {
  struct File {
    std::string name;
    FileDigest digest;
  };
  Index step = 0;
  std::vector<File> files;
  Json state;
};

inline constexpr const char* manifest_name = "manifest.json";

/// A manifest of a version that is not known yet. Going back to an older checkpoint would be wrong.
class NewerManifest : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The text of the file: the manifest and, before it, the hash of exactly its bytes.
std::string text_of(const Manifest& manifest);
/// Throws std::runtime_error if a bit of the text has changed.
Manifest parse_manifest(std::string_view text, const std::string& source);

/// Reads the manifest of a folder and compares every file with it. Throws std::runtime_error at the
/// first that is missing, different or not listed.
Manifest verified_manifest(const std::string& folder, Index step);

}  // namespace rapt::detail
