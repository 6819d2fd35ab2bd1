#include "base/io/descriptor.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/io/check_input.h"
#include "base/io/system_call.h"

namespace rapt::detail {
namespace {

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "not a regular file";
}

}  // namespace

int open_descriptor(const std::string& path, int flags, mode_t mode) {
  const int opened = uninterrupted(
      [&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode); });
  if (opened < 0 || opened > STDERR_FILENO) return opened;
  const int moved = ::fcntl(opened, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int reason = errno;
  ::close(opened);
  errno = reason;
  return moved;
}

int open_regular(const std::string& path, int flags) {
  const int descriptor = open_descriptor(path, flags);
  if (descriptor < 0 && errno == ELOOP && (flags & O_NOFOLLOW) != 0)
    fail_input(path, ": is a symbolic link, expected a regular file");
  if (descriptor < 0) fail_system(errno, path, ": cannot be opened");
  struct stat about {};
  const int answered = ::fstat(descriptor, &about);
  const int reason = errno;
  if (answered == 0 && S_ISREG(about.st_mode)) return descriptor;
  ::close(descriptor);
  if (answered != 0) fail_system(reason, path, ": cannot be examined");
  fail_input(path, ": is ", kind_of(about.st_mode), ", expected a regular file");
}

}  // namespace rapt::detail
