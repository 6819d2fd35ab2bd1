#include "formats/tensors/links.h"

#include <algorithm>
#include <filesystem>

#include "base/io/check_input.h"

namespace rapt::detail {
namespace {

namespace fs = std::filesystem;

/// Both without links.
bool within(const fs::path& folder, const fs::path& path) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

}  // namespace

void check_link(const std::string& model_folder, const std::string& path) {
  const fs::path target = fs::canonical(path), home = fs::canonical(model_folder);
  const bool cached = home.parent_path().filename() == "snapshots";
  const fs::path blobs = home.parent_path().parent_path() / "blobs";
  check_input(within(home, target) || (cached && within(blobs, target)), path, ": is a link to ",
              target.string(), ", outside of ", home.string());
}

}  // namespace rapt::detail
