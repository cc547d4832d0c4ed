// Plans of problems seen before. A plan serves every call with the same shapes, attributes, device and thread count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "convnorm/convnorm.h"

namespace convnorm_torch {

struct Plan {
  ~Plan() { convnorm_plan_destroy(handle); }

  convnorm_problem problem{};
  convnorm_plan* handle = nullptr;
  size_t packed_bytes = 0;
  size_t workspace_bytes = 0;
  int64_t c_y = 0;    // channels of y
  int64_t l_out = 0;  // outputs along L
};

// A plan of the same problem with the promise of convnorm_plan_options::constant_weights, on the current device.
std::shared_ptr<const Plan> with_constant_weights(const Plan& plan);

// Everything that a plan depends on.
struct PlanKey {
  std::string attributes;
  int64_t n, c, l, o, k;
  convnorm_dtype dtype;
  bool bias, affine, lengths;
  convnorm_device device;
  int32_t device_index;
  int32_t threads;

  bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const;
};

// Any number of threads may ask at the same time.
class PlanCache {
 public:
  // Throws std::runtime_error with the library's sentence. On a GPU the key's device must be the current one.
  std::shared_ptr<const Plan> find_or_create(PlanKey key);

 private:
  std::mutex mutex_;
  std::unordered_map<PlanKey, std::shared_ptr<const Plan>, PlanKeyHash> plans_;
  std::deque<const PlanKey*> in_order_;  // of creation; the oldest one gives way
};

// Turns a status into an exception with the library's sentence.
void expect_ok(convnorm_status status);

}  // namespace convnorm_torch
