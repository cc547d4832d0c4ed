#include "kernels/cuda/sync_slots.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.hpp"

namespace convnorm::cuda {

namespace {

constexpr int64_t kHeaderBytes = 128;
constexpr int64_t kLeastBytes = 16 << 10;
constexpr int64_t kChunkBytes = 4 << 20;  // allocated at once

struct Slot {
  int device;
  int64_t bytes;  // a power of two
  char* memory;
};

// Allocating is forbidden to a thread that captures a stream, unless it says that it knows what it does.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Zeroed memory of the current device, ready when this returns.
char* allocate(int64_t bytes) {
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  check(cudaMalloc(&memory, static_cast<size_t>(bytes)), "allocating memory for CTAs to exchange statistics");
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  const cudaError_t cleared = cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream);
  const cudaError_t done = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  check(cleared, "clearing memory for CTAs to exchange statistics");
  check(done, "clearing memory for CTAs to exchange statistics");
  return static_cast<char*>(memory);
}

class Pool {
 public:
  void reserve(int device, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (free_[{device, bytes}].empty()) grow(device, bytes);
  }

  Slot take(int device, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    return take_locked(device, bytes);
  }

  Slot of_stream(int device, unsigned long long stream, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    // A smaller slot that the stream had stays with it: its launches may still run.
    const auto found = streams_.find({device, stream});
    if (found != streams_.end() && found->second.bytes >= bytes) return found->second;
    return streams_[{device, stream}] = take_locked(device, bytes);
  }

  void give_back(const Slot& slot) {
    const std::lock_guard lock(mutex_);
    free_[{slot.device, slot.bytes}].push_back(slot);
  }

 private:
  Slot take_locked(int device, int64_t bytes) {
    auto& slots = free_[{device, bytes}];
    if (slots.empty()) grow(device, bytes);
    const Slot slot = slots.back();
    slots.pop_back();
    return slot;
  }

  void grow(int device, int64_t bytes) {
    const int64_t chunk = std::max(bytes, std::min(kChunkBytes, 16 * bytes));
    char* memory = allocate(chunk);
    for (int64_t at = 0; at + bytes <= chunk; at += bytes)
      free_[{device, bytes}].push_back({device, bytes, memory + at});
  }

  std::mutex mutex_;
  std::map<std::pair<int, int64_t>, std::vector<Slot>> free_;   // by device and bytes
  std::map<std::pair<int, unsigned long long>, Slot> streams_;  // by device and the stream's id, which is never reused
};

// Never destroyed: graphs may give slots back while the process ends.
Pool& pool() {
  static Pool& instance = *new Pool;
  return instance;
}

int64_t slot_bytes(int64_t words) {
  const int64_t bytes = kHeaderBytes + words * static_cast<int64_t>(sizeof(ptx::Word));
  return std::max<int64_t>(kLeastBytes, std::bit_ceil(static_cast<uint64_t>(bytes)));
}

// A slot that `graph` gives back when it and its instances are destroyed.
Slot slot_of_graph(cudaGraph_t graph, int device, int64_t bytes) {
  auto* slot = new Slot(pool().take(device, bytes));
  const auto destroy = [](void* argument) {
    auto* its = static_cast<Slot*>(argument);
    pool().give_back(*its);
    delete its;
  };
  cudaUserObject_t object = nullptr;
  check(cudaUserObjectCreate(&object, slot, destroy, 1, cudaUserObjectNoDestructorSync), "tying memory to a graph");
  const Slot copy = *slot;
  check(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove), "tying memory to a graph");
  return copy;
}

}  // namespace

void reserve_sync_slot(int device, int64_t words) { pool().reserve(device, slot_bytes(words)); }

SyncSlot sync_slot(int device, cudaStream_t stream, int64_t words) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  cudaGraph_t graph = nullptr;
  check(cudaStreamGetCaptureInfo(stream, &status, &capture, &graph),
        "asking whether a stream is captured");
  Slot slot;
  if (status == cudaStreamCaptureStatusActive) {
    slot = slot_of_graph(graph, device, slot_bytes(words));
  } else {
    unsigned long long id = 0;
    check(cudaStreamGetId(stream, &id), "asking for a stream's id");
    slot = pool().of_stream(device, id, slot_bytes(words));
  }
  return {reinterpret_cast<SyncHeader*>(slot.memory), reinterpret_cast<ptx::Word*>(slot.memory + kHeaderBytes)};
}

}  // namespace convnorm::cuda
