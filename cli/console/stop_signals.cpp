#include "cli/console/stop_signals.h"

#include "cli/console/output.h"

namespace rapt::cli {
namespace {

volatile std::sig_atomic_t caught_signal = 0;

/// A second SIGINT or SIGTERM kills. A closing terminal sends SIGHUP more than once, from
/// the kernel and from the shell.
void note(int signal) {
  caught_signal = signal;
  std::signal(signal, signal == SIGHUP ? SIG_IGN : SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  caught_signal = 0;
  for (std::size_t i = 0; i < signals.size(); ++i) {
    struct sigaction action {};
    ::sigaction(signals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;  // nohup, or a shell's background job
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    ::sigaction(signals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before_[i], nullptr);
}

int StopSignals::caught() { return caught_signal; }

void StopSignals::throw_if_caught() {
  if (caught_signal == 0) return;
  end_progress();
  throw Stopped{caught_signal};
}

}  // namespace rapt::cli
