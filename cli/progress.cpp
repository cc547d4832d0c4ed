#include "cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace convnorm::cli {
namespace {

constexpr auto kQuiet = std::chrono::seconds(1);
constexpr auto kPeriod = std::chrono::milliseconds(100);
constexpr size_t kWidth = 30;

}  // namespace

Progress::Progress(std::string what, size_t steps)
    : what_(std::move(what)),
      steps_(std::max<size_t>(steps, 1)),
      enabled_(isatty(STDERR_FILENO) == 1),
      next_(Clock::now() + kQuiet) {}

void Progress::update(double share) {
  if (!enabled_ || Clock::now() < next_) return;
  next_ = Clock::now() + kPeriod;
  const double total = std::clamp((static_cast<double>(done_) + share) / static_cast<double>(steps_), 0.0, 1.0);
  const size_t filled = static_cast<size_t>(total * kWidth);
  fmt::print(stderr, "\r\033[K{} [{}{}] {:3.0f}%", what_, std::string(filled, '#'), std::string(kWidth - filled, '.'),
             100 * total);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::finish_step() {
  ++done_;
  update(0);
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace convnorm::cli
