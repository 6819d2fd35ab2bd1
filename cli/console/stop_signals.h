#pragma once

#include <array>
#include <csignal>

namespace rapt::cli {

/// Ends long work on SIGINT, SIGTERM or SIGHUP: the first is recorded, a second SIGINT or SIGTERM
/// kills as usual. A signal that was ignored before (nohup) stays ignored.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the recorded signal; 0: none.
  static int caught();
  /// Ends the progress line and throws Stopped if a signal was recorded.
  static void throw_if_caught();

 private:
  static constexpr std::array signals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, signals.size()> before_ = {};
};

/// Thrown when a signal ended the work: the exit code is 128 plus its number.
struct Stopped {
  int signal;
};

}  // namespace rapt::cli
