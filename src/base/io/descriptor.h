#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <string>

namespace rapt::detail {

/// open(2) for files that hold data; -1 and errno where it fails. Children do not inherit the
/// descriptor, nothing waits, and the descriptor is never 0, 1 or 2: a program that has closed its
/// standard streams may continue to write messages to those descriptors.
int open_descriptor(const std::string& path, int flags, mode_t mode = 0666);

/// The same for regular files. Throws std::system_error if the file cannot be opened, and
/// std::runtime_error for folders, pipes and devices; with O_NOFOLLOW for symbolic links too.
int open_regular(const std::string& path, int flags);

}  // namespace rapt::detail
