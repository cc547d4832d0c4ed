// Packed weights of modules that keep theirs. A module names its weight by an id of its own; the packed form is used
// again until the tensor is another one or was written to, which its version tells.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "bindings/torch/operator.hpp"
#include "bindings/torch/plans.hpp"

namespace convnorm_torch {

struct PackedWeight {
  Tensor bytes;
  // The plan with the promise of convnorm_plan_options::constant_weights, where a graph is captured that finds the
  // weight packed; null elsewhere.
  std::shared_ptr<const Plan> dependent;
};

class WeightCache {
 public:
  // The weight (C_out, C_in/conv_groups, K), or (C_in, C_out, K) with `phases`, packed for `plan`. With id 0, or for a
  // weight whose changes PyTorch does not count, it is packed for this call alone. While a graph is captured a packed
  // form that is up to date is used as it is, and another one becomes part of the graph.
  PackedWeight packed(const Backend& backend, const convnorm_launch& launch, int64_t id,
                      const std::shared_ptr<const Plan>& plan, const Tensor& weight,
                      const std::optional<Phases>& phases);

  // Packs the weights of one id again at their next calls, in the same memory.
  void forget(int64_t id);

  // The same of all that were packed from these tensors.
  void forget(const std::vector<Tensor>& weights);

  // Gives up all of one id.
  void release(int64_t id);

 private:
  struct Entry {
    std::shared_ptr<const Plan> plan;
    // Of the same problem. Nothing but convnorm_pack_weight writes `packed`, and no graph holds that packing: the
    // promise is kept. Null where it means nothing.
    std::shared_ptr<const Plan> dependent;
    Tensor weight;  // holds its memory, so that no other tensor can take its address while this entry lives
    std::optional<Phases> phases;
    int64_t version;
    Tensor packed;
    const Backend* backend;
    void* home;                // the stream in whose order the memory of `packed` is handed on
    std::vector<void*> users;  // streams that may still be reading it
    bool captured;             // graphs read it: it stays as long as its id
  };

  // Gives up the memory once all users have read it.
  void retire(Entry entry);

  std::mutex mutex_;
  std::unordered_map<int64_t, std::vector<Entry>> entries_;  // by id, oldest first
  std::vector<Entry> kept_for_good_;                         // of whose users no order could be had
};

WeightCache& weight_cache();

}  // namespace convnorm_torch
