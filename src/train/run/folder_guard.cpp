#include "train/run/folder_guard.h"

#include "base/check.h"
#include "base/io/files.h"
#include "train/run/checkpoint_store.h"

namespace rapt::detail {
namespace {

namespace fs = std::filesystem;

/// Also where a link leads nowhere.
bool is_there(const fs::path& path) { return fs::exists(fs::symlink_status(path)); }

void remove_empty(const std::vector<fs::path>& folders) {
  std::error_code ignored;
  for (const fs::path& path : folders) fs::remove(path, ignored);
}

}  // namespace

void check_apart(const DataOptions& data, const std::string& folder) {
  check(!folder.empty(), "train: the run has no folder, expected a name");
  for (const std::string& path : {data.path, data.eval_path.value_or("")}) {
    std::error_code none;
    if (!fs::is_directory(path, none)) continue;
    const fs::path whole = fs::weakly_canonical(fs::absolute(folder));
    const fs::path inside = whole.lexically_relative(fs::canonical(path));
    bool read = !inside.empty() && *inside.begin() != "..";
    for (const fs::path& part : inside)
      read = read && (part == "." || !part.string().starts_with('.'));
    check(!read, "train: the run ", folder, " is inside its data, ", path,
          ", and would be read as text; expected a folder outside, or a name that begins with "
          "a dot");
  }
}

void check_free(const std::string& folder) {
  // A run has its lock from its first moment on; checkpoints may have been copied without it.
  if (!fs::is_directory(folder) || is_there(fs::path(folder) / lock_name)) return;
  if (!CheckpointStore(folder, {.reads_only = true}).steps().empty()) return;
  for (const std::string_view name : run_file_names)
    if (is_there(fs::path(folder) / name))
      throw FolderNotEmpty(FolderNotEmpty::Holds::other_files,
                           "train: " + folder + " holds no run, but a " + std::string(name) +
                               " that training would overwrite");
}

FolderGuard::FolderGuard(const std::string& folder)
    : folder_(fs::absolute(folder).lexically_normal()) {
  if (!folder_.has_filename()) folder_ = folder_.parent_path();
  make_folder();
  const bool new_lock = !is_there(folder_ / lock_name);
  try {
    lock_.emplace((folder_ / lock_name).string());
  } catch (...) {
    remove_empty(new_folders_);
    throw;
  }
  for (const std::string_view name : run_file_names)
    if (!is_there(folder_ / name)) new_files_.push_back(folder_ / name);
  if (new_lock) new_files_.push_back(folder_ / lock_name);
}

void FolderGuard::make_folder() {
  for (fs::path path = folder_; !fs::exists(path); path = path.parent_path())
    new_folders_.push_back(path);
  if (fs::create_directories(folder_)) sync_folder(folder_.parent_path().string());
}

FolderGuard::~FolderGuard() {
  try {
    if (!kept_) take_away();
  } catch (const std::exception&) {
    // The folder is no longer writable.
  }
}

void FolderGuard::take_away() {
  if (!CheckpointStore(folder_.string(), {.reads_only = true}).steps().empty()) return;
  for (const fs::path& path : new_files_) fs::remove(path);  // the lock is the last
  remove_empty(new_folders_);
}

}  // namespace rapt::detail
