// Count, mean and centred sum of squares of many values.
#pragma once

namespace convnorm::cuda {

struct alignas(8) Slot {
  double count, mean, m2;
};

}  // namespace convnorm::cuda
