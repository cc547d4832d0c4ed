// The words of the problem line for each enumeration of convnorm.h, in the order of its values.
#pragma once

#include <array>
#include <string_view>

#include "convnorm/convnorm.h"

namespace convnorm {

inline constexpr std::array<std::string_view, 3> kPadNames = {"zeros", "reflect", "replicate"};
inline constexpr std::array<std::string_view, 2> kLayoutNames = {"ncl", "nlc"};
inline constexpr std::array<std::string_view, 3> kDtypeNames = {"f32", "f16", "bf16"};
inline constexpr std::array<std::string_view, 3> kPrecisionNames = {"highest", "high", "medium"};

static_assert(CONVNORM_ZEROS == 0 && CONVNORM_REFLECT == 1 && CONVNORM_REPLICATE == 2);
static_assert(CONVNORM_NCL == 0 && CONVNORM_NLC == 1);
static_assert(CONVNORM_F32 == 0 && CONVNORM_F16 == 1 && CONVNORM_BF16 == 2);
static_assert(CONVNORM_HIGHEST == 0 && CONVNORM_HIGH == 1 && CONVNORM_MEDIUM == 2);

}  // namespace convnorm
