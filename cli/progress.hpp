// A bar on stderr for runs that a person waits for: on a terminal, and only after a second.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace convnorm::cli {

class Progress {
 public:
  Progress(std::string what, size_t steps);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `share` of the running step is done.
  void update(double share);
  void finish_step();

  // Takes the bar away, so that a line of results can be printed; the next update draws it again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  size_t steps_;
  size_t done_ = 0;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point next_;  // not to be drawn before
};

}  // namespace convnorm::cli
