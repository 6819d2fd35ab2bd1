#include "base/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/input.h"
#include "base/system_call.h"

namespace rapt {
namespace {

/// Whoever wrote its number into the file. Nothing but digits is believed.
std::string owner_of(int descriptor) {
  char text[20] = {};
  const ssize_t length = ::pread(descriptor, text, sizeof(text), 0);
  std::string owner(text, static_cast<std::size_t>(std::max<ssize_t>(0, length)));
  owner = owner.substr(0, owner.find_first_not_of("0123456789"));
  return owner.empty() ? "unknown" : owner;
}

/// For the message of whoever comes next; the lock holds without it.
void sign(int descriptor) {
  const std::string owner = std::to_string(::getpid()) + "\n";
  if (::ftruncate(descriptor, 0) != 0) return;
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor, owner.data(), owner.size(), 0);
}

}  // namespace

FileLock::FileLock(const std::string& path) {
  descriptor_ = uninterrupted(
      [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666); });
  if (descriptor_ < 0) fail_system(errno, path, ": cannot be opened");
  if (uninterrupted([&] { return ::flock(descriptor_, LOCK_EX | LOCK_NB); }) == 0) {
    sign(descriptor_);
    return;
  }
  const int reason = errno;
  const std::string owner = owner_of(descriptor_);
  ::close(descriptor_);
  if (reason != EWOULDBLOCK) fail_system(reason, path, ": cannot be locked");
  fail_input(path, ": is held by process ", owner, ", which is still running");
}

FileLock::~FileLock() { ::close(descriptor_); }

}  // namespace rapt
