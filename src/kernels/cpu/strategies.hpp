// The CPU strategies, in the order in which a plan asks them. Each answers with a configuration or a reason.
#pragma once

#include "plan/plan.hpp"

namespace convnorm::cpu {

Answer consider_small_l(const PlanRequest&);    // few positions, wide channels: channels are the vector dimension
Answer consider_moments(const PlanRequest&);    // few inputs, many channels: statistics from moments of the inputs
Answer consider_resident(const PlanRequest&);   // whole groups stay in the second-level cache
Answer consider_streaming(const PlanRequest&);  // convolution computed twice, nothing stored in between
Answer consider_split(const PlanRequest&);      // groups larger than the cache: z kept, normalised in a second pass
Answer consider_recompute(const PlanRequest&);  // streaming without its limit, where split would keep too much

}  // namespace convnorm::cpu
