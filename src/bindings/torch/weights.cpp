#include "bindings/torch/weights.hpp"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "bindings/torch/phases.hpp"

namespace convnorm_torch {

namespace {

// Shapes for which one module keeps its weight: each costs the memory of a weight.
constexpr size_t kMostPerWeight = 8;

// No tensor has this version.
constexpr int64_t kForgotten = -1;

template <class T>
T ask(const char* question, const Tensor& tensor) {
  std::array<StableIValue, 1> stack = {torch::stable::detail::from(tensor)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(question, "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<T>(stack[0]);
}

// A tensor of its own over the same memory: `parameter.data = ...` leaves it where it is.
Tensor detached(const Tensor& tensor) { return ask<Tensor>("aten::detach", tensor); }

void pack_into(const Plan& plan, const convnorm_launch& launch, const Tensor& weight,
               const std::optional<Phases>& phases, torch::headeronly::ScalarType dtype, Tensor& packed) {
  Tensor dense = phases ? arranged(*phases, weight) : weight;
  if (dense.scalar_type() != dtype) dense = torch::stable::to(dense, dtype);
  if (!dense.is_contiguous()) dense = torch::stable::contiguous(dense);
  expect_ok(
      convnorm_pack_weight(plan.handle, dense.const_data_ptr(), packed.mutable_data_ptr(), plan.packed_bytes, &launch));
}

torch::headeronly::ScalarType scalar_type(convnorm_dtype dtype) {
  using torch::headeronly::ScalarType;
  if (dtype == CONVNORM_F16) return ScalarType::Half;
  return dtype == CONVNORM_BF16 ? ScalarType::BFloat16 : ScalarType::Float;
}

}  // namespace

Tensor new_bytes(const Tensor& like, size_t bytes) {
  const int64_t size = static_cast<int64_t>(bytes);
  const int64_t stride = 1;
  int32_t device_type = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_uint8(), device_type,
                                                         like.get_device_index(), &handle));
  return Tensor(handle);
}

PackedWeight WeightCache::packed(const Backend& backend, const convnorm_launch& launch, int64_t id,
                                 const std::shared_ptr<const Plan>& plan, const Tensor& weight,
                                 const std::optional<Phases>& phases) {
  const auto dtype = scalar_type(plan->problem.dtype);
  const auto pack_once = [&] {
    Tensor packed = new_bytes(weight, plan->packed_bytes);
    pack_into(*plan, launch, weight, phases, dtype, packed);
    return PackedWeight{packed, nullptr};
  };
  if (id == 0) return pack_once();

  const std::lock_guard lock(mutex_);
  std::vector<Entry>& entries = entries_[id];
  const auto found = std::ranges::find(entries, plan, &Entry::plan);
  // Strides, because `weight.data = weight.data.transpose(0, 1)` changes nothing else; sizes, because transposed
  // convolutions of several have the same plan.
  if (found != entries.end() && found->weight.const_data_ptr() == weight.const_data_ptr() &&
      std::ranges::equal(found->weight.strides(), weight.strides()) &&
      std::ranges::equal(found->weight.sizes(), weight.sizes()) && found->phases == phases &&
      found->version == ask<int64_t>("aten::_version", weight)) {
    if (std::ranges::find(found->users, launch.stream) == found->users.end()) found->users.push_back(launch.stream);
    if (!backend.capturing(launch)) return {found->packed, nullptr};
    found->captured = true;
    return {found->packed, found->dependent};
  }
  if (ask<bool>("aten::is_inference", weight)) return pack_once();
  const int64_t version = ask<int64_t>("aten::_version", weight);
  if (backend.capturing(launch)) return pack_once();
  if (found != entries.end()) {
    // Into the same memory, so that graphs captured with it see the new weight.
    for (void* user : found->users) backend.order(user, launch.stream);
    pack_into(*plan, launch, weight, phases, dtype, found->packed);
    found->weight = detached(weight);
    found->phases = phases;
    found->version = version;
    backend.wait(launch);
    return {found->packed, nullptr};
  }
  // Now, because a plan may allocate, which must not be while a graph is captured.
  std::shared_ptr<const Plan> dependent = backend.device == CONVNORM_CUDA ? with_constant_weights(*plan) : nullptr;
  Tensor packed = backend.lasting_bytes(weight, plan->packed_bytes, launch);
  pack_into(*plan, launch, weight, phases, dtype, packed);
  Entry entry{.plan = plan,
              .dependent = std::move(dependent),
              .weight = detached(weight),
              .phases = phases,
              .version = version,
              .packed = packed,
              .backend = &backend,
              .home = launch.stream,
              .users = {launch.stream},
              .captured = false};
  backend.wait(launch);  // once per weight: calls on any stream may use it from here on
  const auto oldest = std::ranges::find(entries, false, &Entry::captured);
  if (entries.size() >= kMostPerWeight && oldest != entries.end()) {
    retire(std::move(*oldest));
    entries.erase(oldest);
  }
  entries.push_back(std::move(entry));
  return {entries.back().packed, nullptr};
}

void WeightCache::forget(int64_t id) {
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(id); found != entries_.end()) {
    for (Entry& entry : found->second) entry.version = kForgotten;
  }
}

void WeightCache::forget(const std::vector<Tensor>& weights) {
  std::unordered_set<const void*> written;
  for (const Tensor& weight : weights) written.insert(weight.const_data_ptr());
  const std::lock_guard lock(mutex_);
  for (auto& [id, entries] : entries_) {
    for (Entry& entry : entries) {
      if (written.contains(entry.weight.const_data_ptr())) entry.version = kForgotten;
    }
  }
}

void WeightCache::release(int64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  for (Entry& entry : found->second) retire(std::move(entry));
  entries_.erase(found);
}

void WeightCache::retire(Entry entry) {
  for (void* user : entry.users) {
    if (user != entry.home && !entry.backend->order(user, entry.home)) {
      kept_for_good_.push_back(std::move(entry));
      return;
    }
  }
}

WeightCache& weight_cache() {
  // Never destroyed: at the end of the process PyTorch's allocators may be gone before this.
  static WeightCache& cache = *new WeightCache;
  return cache;
}

}  // namespace convnorm_torch
