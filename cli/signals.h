#pragma once

#include <array>
#include <csignal>

namespace rapt::cli {

/// Asks long work to end on SIGINT, SIGTERM or SIGHUP: the first is noted, a second SIGINT or
/// SIGTERM kills as usual. A signal that the caller has told us to ignore (nohup) stays ignored.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the signal that came; 0: none.
  static int caught();

 private:
  static constexpr std::array signals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, signals.size()> before_ = {};
};

/// Thrown when work ended because of a signal: the exit code is 128 plus its number.
struct Stopped {
  int signal;
};

}  // namespace rapt::cli
