// Instruction sets compiled into the CPU backend, and what this machine can do.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convnorm/convnorm.h"

namespace convnorm::cpu {

// Compiled in and present here, best first.
const std::vector<const char*>& available_targets();
// Compiled in, present or not, best first.
const std::vector<const char*>& compiled_targets();

// Measured by independent fused multiply-adds and by a streaming copy.
convnorm_machine measure(int threads, const std::string& target);

}  // namespace convnorm::cpu
