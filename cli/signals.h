#pragma once

namespace rapt::cli {

/// Asks long work to end on SIGINT or SIGTERM: the first is noted, a second one kills as usual.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the signal that came; 0: none.
  static int caught();
};

/// Thrown when work ended because of a signal: the exit code is 128 plus its number.
struct Stopped {
  int signal;
};

}  // namespace rapt::cli
