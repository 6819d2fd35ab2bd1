#include "cli/signals.h"

#include <csignal>

namespace rapt::cli {
namespace {

volatile std::sig_atomic_t caught_signal = 0;

void note(int signal) {
  caught_signal = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  caught_signal = 0;
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}

StopSignals::~StopSignals() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int StopSignals::caught() { return caught_signal; }

}  // namespace rapt::cli
