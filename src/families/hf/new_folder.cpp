#include "families/hf/new_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/io/check_input.h"

namespace rapt::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view random_letters = "XXXXXX";
constexpr const char* lock_name = ".rapt-unfinished";

std::string prefix_of(const fs::path& wanted) { return wanted.filename().string() + ".part-"; }

bool is_unfinished(const fs::directory_entry& entry, const std::string& prefix) {
  const std::string name = entry.path().filename().string();
  if (!name.starts_with(prefix) || name.size() != prefix.size() + random_letters.size())
    return false;
  const auto letter = [](unsigned char c) { return std::isalnum(c) != 0; };
  if (!std::all_of(name.begin() + std::ssize(prefix), name.end(), letter)) return false;
  // An owner signs its lock when it holds it: an empty one is about to be locked.
  const fs::path lock = entry.path() / lock_name;
  return fs::is_directory(entry.symlink_status()) &&
         fs::is_regular_file(fs::symlink_status(lock)) && fs::file_size(lock) > 0;
}

/// Removes the lock last: if this is interrupted, the next process finds it.
void remove_unfinished(const fs::path& folder) {
  const FileLock lock((folder / lock_name).string());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != lock_name) fs::remove_all(entry.path());
  fs::remove_all(folder);
}

void remove_leftovers(const fs::path& wanted) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(wanted.parent_path(), ignored)) {
    try {
      if (is_unfinished(entry, prefix_of(wanted))) remove_unfinished(entry.path());
    } catch (const std::exception&) {
      // Its owner is alive, or it is not ours to remove.
    }
  }
}

}  // namespace

NewFolder::NewFolder(const std::string& wanted) : wanted_(fs::absolute(wanted).lexically_normal()) {
  if (!wanted_.has_filename()) wanted_ = wanted_.parent_path();
  fs::create_directories(wanted_.parent_path());
  remove_leftovers(wanted_);
  std::string name = (wanted_.parent_path() / prefix_of(wanted_)).string();
  name += random_letters;
  if (mkdtemp(name.data()) == nullptr)
    fail_input("save_pretrained: no folder can be made next to ", wanted, ": ",
               std::strerror(errno));
  path_ = name;
  try {
    fs::permissions(path_, fs::perms::all & ~fs::perms::group_write & ~fs::perms::others_write);
    lock_.emplace((path_ / lock_name).string());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    throw;
  }
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void NewFolder::finish() {
  if (fs::exists(wanted_) && !fs::is_symlink(wanted_)) fs::remove(wanted_);
  const fs::path place = fs::is_symlink(wanted_) ? fs::canonical(wanted_) : wanted_;
  fs::rename(path_, place);
  path_.clear();
  fs::remove(place / lock_name);
}

}  // namespace rapt::detail
