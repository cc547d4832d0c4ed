// What this build and this machine offer, as text or JSON.
#pragma once

#include <string>

#include "convnorm/convnorm.h"

namespace convnorm {

const char* version();
std::string info(convnorm_format format);

}  // namespace convnorm
