#include "cli/interrupt.hpp"

#include <csignal>
#include <initializer_list>

namespace convnorm::cli {
namespace {

// Signal handlers may touch nothing else.
volatile std::sig_atomic_t writing = 0;
volatile std::sig_atomic_t pending = 0;

void die_by(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void on_signal(int signal) {
  if (writing == 0 || pending != 0) return die_by(signal);
  pending = signal;
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a write that a signal interrupts goes on
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction inherited = {};
    sigaction(signal, nullptr, &inherited);
    // Whoever starts the program under nohup or in the background wants the signal ignored.
    if (inherited.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

UninterruptedWrite::UninterruptedWrite() { writing = 1; }

UninterruptedWrite::~UninterruptedWrite() {
  writing = 0;
  if (pending != 0) die_by(pending);
}

}  // namespace convnorm::cli
