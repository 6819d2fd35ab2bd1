#include "cli/console/streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

namespace rapt::cli {

void prepare_streams() {
  // open returns the lowest free descriptor, so all below the one that is looked at must be open.
  // Standard output is opened for reading: writing a result to it is an error.
  constexpr int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", modes[stream]) != stream)
      ::_exit(1);  // no /dev/null: there is no place for messages, and files must not become one
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace rapt::cli
