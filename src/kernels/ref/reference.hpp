// The definition of the operator, in double precision, as the formula is written. Last in every registry.
#pragma once

#include "plan/plan.hpp"

namespace convnorm::ref {

Answer consider_reference(const PlanRequest&);  // never refuses

}  // namespace convnorm::ref
