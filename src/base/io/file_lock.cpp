#include "base/io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/io/check_input.h"
#include "base/io/descriptor.h"
#include "base/io/system_call.h"
#include "base/sizes.h"

namespace rapt::detail {
namespace {

/// What a lock holds: the number of the process that took it last, or nothing.
struct Signature {
  bool ours = false;  // nothing but that
  std::string owner = "unknown";
};

Signature signature_of(int descriptor) {
  char text[24] = {};
  const ssize_t length = ::pread(descriptor, text, sizeof(text), 0);
  if (length < 0) return {};
  const std::string all(text, to_size(length));
  const std::string owner = all.substr(0, all.find_first_not_of("0123456789"));
  // A disk that was full may have kept the line from its end.
  const bool ours = all.size() < sizeof(text) && (all == owner || all == owner + "\n");
  return {ours, owner.empty() ? "unknown" : owner};
}

/// Writes the process id for the message of the next process; the lock holds without it. Does not
/// write to a file that has another name elsewhere.
void sign(int descriptor) {
  struct stat about {};
  if (::fstat(descriptor, &about) != 0 || about.st_nlink > 1) return;
  const std::string owner = std::to_string(::getpid()) + "\n";
  if (::ftruncate(descriptor, 0) != 0) return;
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor, owner.data(), owner.size(), 0);
}

/// Whether the path still leads to the open file: its last owner may have removed it meanwhile.
bool still_there(int descriptor, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

FileLock::FileLock(const std::string& path) {
  constexpr int most = 100;  // some file systems never give a file the same number twice
  for (int tries = 0;; ++tries) {
    check_input(tries < most, path, ": was replaced ", most,
                " times while it was being locked; take a folder on another file system");
    descriptor_ = open_regular(path, O_RDWR | O_CREAT | O_NOFOLLOW);
    const bool locked = uninterrupted([&] { return ::flock(descriptor_, LOCK_EX | LOCK_NB); }) == 0;
    const int reason = errno;
    const Signature signature = signature_of(descriptor_);
    const bool there = still_there(descriptor_, path);
    if (locked && there && signature.ours) break;
    ::close(descriptor_);
    if (!locked && reason != EWOULDBLOCK) fail_system(reason, path, ": cannot be locked");
    check_input(locked, path, ": is held by process ", signature.owner, ", which is still running");
    check_input(!there, path,
                ": is no lock of rapt, but a file with other contents; move it away "
                "or take another folder");
  }
  sign(descriptor_);
}

FileLock::~FileLock() { ::close(descriptor_); }

}  // namespace rapt::detail
