#include "cli/device.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "cli/failure.hpp"

namespace convnorm::cli {
namespace {

constexpr int kPoison = 0xFF;

void require(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();
  throw BadInput(fmt::format("{}: {} ({})", what, cudaGetErrorName(result), cudaGetErrorString(result)));
}

std::byte* allocate(size_t size) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, size), "allocating device memory");
  require(cudaMemset(memory, kPoison, size), "filling device memory");
  return static_cast<std::byte*>(memory);
}

}  // namespace

DeviceBuffer::DeviceBuffer(size_t size) : size_(size), memory_(allocate(size + 2 * kGuard)) {}

void DeviceBuffer::Free::operator()(std::byte* memory) const { cudaFree(memory); }

void DeviceBuffer::upload(const void* from) {
  require(cudaMemcpy(data(), from, size_, cudaMemcpyHostToDevice), "copying to the device");
}

void DeviceBuffer::download(void* to) const {
  require(cudaDeviceSynchronize(), "waiting for the device");
  require(cudaMemcpy(to, data(), size_, cudaMemcpyDeviceToHost), "copying from the device");
}

void DeviceBuffer::poison() { require(cudaMemset(data(), kPoison, size_), "filling device memory"); }

bool DeviceBuffer::guards_intact() const {
  std::vector<std::byte> guards(2 * kGuard);
  require(cudaMemcpy(guards.data(), memory_.get(), kGuard, cudaMemcpyDeviceToHost), "copying from the device");
  require(cudaMemcpy(guards.data() + kGuard, data() + size_, kGuard, cudaMemcpyDeviceToHost),
          "copying from the device");
  return std::ranges::all_of(guards, [](std::byte each) { return each == std::byte{kPoison}; });
}

DeviceMemory device_memory() {
  size_t free = 0, total = 0;
  require(cudaMemGetInfo(&free, &total), "asking for free device memory");
  int device = 0, l2 = 0;
  require(cudaGetDevice(&device), "asking for the current device");
  require(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device), "asking for the size of the cache");
  return {free, static_cast<size_t>(l2)};
}

std::optional<int> clock_mhz() {
  // The driver's management library, which need not be there: three functions, looked up by name.
  using Device = struct nvmlDevice*;
  constexpr int kMultiprocessors = 1;
  static void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) return std::nullopt;
  const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto find = reinterpret_cast<int (*)(const char*, Device*)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
  const auto clock = reinterpret_cast<int (*)(Device, int, unsigned*)>(dlsym(library, "nvmlDeviceGetClockInfo"));
  int device = 0;
  char bus[32];
  Device handle = nullptr;
  unsigned mhz = 0;
  if (init == nullptr || find == nullptr || clock == nullptr || init() != 0 || cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetPCIBusId(bus, sizeof bus, device) != cudaSuccess || find(bus, &handle) != 0 ||
      clock(handle, kMultiprocessors, &mhz) != 0)
    return std::nullopt;
  return static_cast<int>(mhz);
}

struct Recording::State {
  ~State() {
    if (work != nullptr) cudaGraphExecDestroy(work);
    if (begin != nullptr) cudaEventDestroy(begin);
    if (end != nullptr) cudaEventDestroy(end);
    if (stream != nullptr) cudaStreamDestroy(stream);
  }

  cudaStream_t stream = nullptr;
  cudaGraphExec_t work = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
};

Recording::Recording(const std::function<void(void*)>& enqueue) : state_(std::make_unique<State>()) {
  State& s = *state_;
  require(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking), "creating a stream");
  require(cudaEventCreate(&s.begin), "creating an event");
  require(cudaEventCreate(&s.end), "creating an event");
  cudaGraph_t graph = nullptr;
  require(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
  try {
    enqueue(s.stream);
  } catch (...) {
    cudaStreamEndCapture(s.stream, &graph);
    throw;
  }
  require(cudaStreamEndCapture(s.stream, &graph), "ending a capture");
  const cudaError_t made = cudaGraphInstantiate(&s.work, graph, 0);
  cudaGraphDestroy(graph);
  require(made, "instantiating a graph");
  require(cudaGraphUpload(s.work, s.stream), "uploading a graph");
  require(cudaStreamSynchronize(s.stream), "uploading a graph");
}

Recording::~Recording() = default;

double Recording::replay() const {
  const State& s = *state_;
  require(cudaEventRecord(s.begin, s.stream), "recording an event");
  require(cudaGraphLaunch(s.work, s.stream), "replaying a graph");
  require(cudaEventRecord(s.end, s.stream), "recording an event");
  require(cudaEventSynchronize(s.end), "replaying a graph");
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, s.begin, s.end), "asking for a time");
  return milliseconds * 1e-3;
}

}  // namespace convnorm::cli
