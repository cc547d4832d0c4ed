// How a verb ends: the exit statuses, and the exception that becomes status 2 and one line on stderr.
#pragma once

#include <stdexcept>

namespace convnorm::cli {

enum ExitStatus : int { kMet = 0, kNotMet = 1, kBadInput = 2 };

struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace convnorm::cli
