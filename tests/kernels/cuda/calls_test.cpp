// How a GPU is called: streams, captures, devices, and memory that is not its own.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "kernels/cuda/on_device.hpp"

namespace convnorm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Calls : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no GPU";
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    // Nothing that was refused leaves an error behind.
    EXPECT_EQ(device_count() == 0 ? cudaSuccess : cudaGetLastError(), cudaSuccess);
  }
  cudaStream_t stream_ = nullptr;
};

TEST_F(Calls, B067_AnotherDeviceThanTheCurrentOne) {
  if (device_count() < 2) GTEST_SKIP() << "one GPU";
  cudaSetDevice(1);
  OnDevice there;
  cudaSetDevice(0);
  OnDevice here;
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ((round % 2 == 0 ? there : here).execute(), CONVNORM_OK) << convnorm_last_error();
    int current = -1;
    cudaGetDevice(&current);
    EXPECT_EQ(current, 0);
  }
  cudaSetDevice(1);
  EXPECT_EQ(there.fault(), "");
  cudaSetDevice(0);
  EXPECT_EQ(here.fault(), "");
  here.tensors.gamma = there.tensors.gamma;
  EXPECT_EQ(here.execute(), CONVNORM_INVALID_ARGUMENT);
  EXPECT_THAT(convnorm_last_error(), AllOf(HasSubstr("gamma"), HasSubstr("device 1"), HasSubstr("device 0")));
}

// x arrives late in the stream of the call: a kernel in any other stream would miss it.
TEST_F(Calls, B068_EverythingOnTheCallersStream) {
  OnDevice call;
  std::vector<float> zeros(call.in.x.size());
  for (int round = 0; round < 20; ++round) {
    cudaMemcpy(call.x->data(), zeros.data(), call.x->size(), cudaMemcpyHostToDevice);
    cudaLaunchHostFunc(
        stream_, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }, nullptr);
    cudaMemcpyAsync(call.x->data(), call.in.x.data(), call.x->size(), cudaMemcpyHostToDevice, stream_);
    ASSERT_EQ(call.pack(call.w->data(), stream_), CONVNORM_OK) << convnorm_last_error();
    ASSERT_EQ(call.execute(stream_), CONVNORM_OK) << convnorm_last_error();
    ASSERT_EQ(call.fault(), "") << round;
  }
}

TEST_F(Calls, B070_CapturedAndReplayedOnOtherInputs) {
  OnDevice call;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t work = nullptr;
  // The strictest mode: whatever might wait or allocate anywhere fails.
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(call.pack(call.w->data(), stream_), CONVNORM_OK) << convnorm_last_error();
  EXPECT_EQ(call.execute(stream_), CONVNORM_OK) << convnorm_last_error();
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&work, graph, 0), cudaSuccess);
  for (int round = 0; round < 3; ++round) {
    for (float& value : call.in.x) value = value * 0.5f + static_cast<float>(round);
    cudaMemcpy(call.x->data(), call.in.x.data(), call.x->size(), cudaMemcpyHostToDevice);
    ASSERT_EQ(cudaGraphLaunch(work, stream_), cudaSuccess);
    EXPECT_EQ(call.fault(), "") << round;
  }
  cudaGraphExecDestroy(work);
  cudaGraphDestroy(graph);
}

// Of a weight that was not packed, the size that is looked at is another's.
TEST_F(Calls, AnOverlapWithThePackedWeightSaysWhatItShouldBe) {
  OnDevice call;
  call.tensors.y = call.packed->data() + 256;
  EXPECT_EQ(call.execute(), CONVNORM_INVALID_ARGUMENT);
  EXPECT_THAT(convnorm_last_error(), AllOf(HasSubstr("y overlaps packed_weight"), HasSubstr("bytes from"),
                                           HasSubstr("what convnorm_pack_weight has filled")));
}

constexpr const char* kPolicy = "n=1,c=512,l=16,o=512,k=5,p=2,g=8,bias=1,post=mish";

#if CUDART_VERSION >= 13000  // older ones name these functions otherwise
// A dependent launch may run beside the kernel before it, which therefore must not be the one that packs its weight.
TEST_F(Calls, PackingNeverStandsDirectlyBeforeADependentLaunch) {
  OnDevice call(kPolicy, nullptr, true);
  if (std::string(convnorm_plan_path(call.plan)) != "sm90_stream") GTEST_SKIP() << "no path launches so";
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(call.pack(call.w->data(), stream_), CONVNORM_OK) << convnorm_last_error();
  const cudaStream_t stream = stream_;
  const auto last_node = [stream] {
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t* nodes = nullptr;
    size_t count = 0;
    EXPECT_EQ(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count), cudaSuccess);
    return count == 1 ? nodes[0] : nullptr;
  };
  const cudaGraphNode_t packed = last_node();
  EXPECT_EQ(call.execute(stream_), CONVNORM_OK) << convnorm_last_error();
  EXPECT_EQ(call.execute(stream_), CONVNORM_OK) << convnorm_last_error();
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);

  size_t count = 0;
  ASSERT_EQ(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), cudaSuccess);
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  ASSERT_EQ(cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &count), cudaSuccess);
  // The weight's kernel, the kernel that ends packing by writing the header, and two calls.
  ASSERT_EQ(count, 3u);
  for (size_t i = 0; i < count; ++i) {
    const bool dependent = data[i].type == cudaGraphDependencyTypeProgrammatic;
    EXPECT_EQ(dependent, to[i] != packed) << "edge " << i;
  }
  cudaGraphDestroy(graph);
}
#endif

TEST_F(Calls, AWeightThatHasJustBeenPackedIsTheOneThatCounts) {
  OnDevice careful(kPolicy), call(kPolicy, nullptr, true);
  std::vector<float> other = call.in.w;
  for (float& value : other) value = -value;
  const DeviceBlock negated(other.data(), other.size() * sizeof(float));
  std::vector<double> expected[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(careful.pack(i == 0 ? careful.w->data() : negated.data()), CONVNORM_OK) << convnorm_last_error();
    ASSERT_EQ(careful.execute(), CONVNORM_OK) << convnorm_last_error();
    expected[i] = careful.result();
  }
  for (int round = 0; round < 2000; ++round) {
    ASSERT_EQ(call.pack(round % 2 == 0 ? call.w->data() : negated.data(), stream_), CONVNORM_OK);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(call.execute(stream_), CONVNORM_OK);
    if (round % 50 >= 2) continue;
    ASSERT_EQ(call.result(), expected[round % 2]) << round;
  }
}

// Each call reads what the one before wrote, and writes what the one before read.
TEST_F(Calls, DependentCallsSeeEachOthersResults) {
  constexpr const char* kDepthwise = "n=2,c=96,l=3200,o=96,k=3,d=128,p=128,cg=96,g=1,bias=1,post=relu";
  for (const char* line : {kPolicy, kDepthwise}) {
    SCOPED_TRACE(line);
    OnDevice alone(line), call(line, nullptr, true);
    for (OnDevice* each : {&alone, &call}) {
      void* const first = each->x->data();
      for (int round = 0; round < 200; ++round) {
        each->tensors.x = round % 2 == 0 ? first : each->y->data();
        each->tensors.y = round % 2 == 0 ? each->y->data() : first;
        ASSERT_EQ(each->execute(stream_), CONVNORM_OK) << convnorm_last_error();
        if (each == &alone) cudaStreamSynchronize(stream_);
      }
      cudaStreamSynchronize(stream_);
    }
    std::vector<float> x(call.in.x.size()), wanted(x.size());
    call.x->copy_to(x.data());
    alone.x->copy_to(wanted.data());
    EXPECT_EQ(x, wanted);
    EXPECT_EQ(call.result(), alone.result());
  }
}

// Pinned memory of the host is within a kernel's reach, so that what the promise leaves out shows.
TEST_F(Calls, PromisedMemoryIsNotAskedFor) {
  OnDevice call;
  ASSERT_EQ(call.execute(), CONVNORM_OK) << convnorm_last_error();
  const std::vector<double> wanted = call.result();
  const size_t bytes = call.in.x.size() * sizeof(float);
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, bytes), cudaSuccess);
  std::memcpy(pinned, call.in.x.data(), bytes);
  call.tensors.x = pinned;
  EXPECT_EQ(call.execute(), CONVNORM_INVALID_ARGUMENT);
  convnorm_launch launch{};
  launch.on_device = 1;
  EXPECT_EQ(convnorm_execute(call.plan, &call.tensors, call.workspace->data(), call.workspace->size(), &launch),
            CONVNORM_OK)
      << convnorm_last_error();
  EXPECT_EQ(call.result(), wanted);
  cudaFreeHost(pinned);
}

TEST_F(Calls, B072_HostMemoryIsRefusedByName) {
  OnDevice call;
  const convnorm_tensors good = call.tensors;
  std::vector<float> y(call.in.y_bytes() / sizeof(float));
  std::vector<std::byte> packed(call.packed->size() + 512);
  const auto expect_refused = [&](const char* name) {
    EXPECT_EQ(call.execute(), CONVNORM_INVALID_ARGUMENT) << name;
    EXPECT_THAT(convnorm_last_error(),
                AllOf(HasSubstr(std::string(name) + " lies in host memory"), HasSubstr("device 0")));
    call.tensors = good;
  };
  call.tensors.x = call.in.x.data();
  expect_refused("x");
  call.tensors.bias = call.in.bias.data();
  expect_refused("bias");
  call.tensors.gamma = call.in.gamma.data();
  expect_refused("gamma");
  call.tensors.beta = call.in.beta.data();
  expect_refused("beta");
  call.tensors.y = y.data();
  expect_refused("y");
  call.tensors.packed_weight = packed.data();
  expect_refused("packed_weight");
  EXPECT_EQ(convnorm_pack_weight(call.plan, call.w->data(), packed.data(), packed.size(), nullptr),
            CONVNORM_INVALID_ARGUMENT);
  EXPECT_THAT(convnorm_last_error(), HasSubstr("packed lies in host memory"));
  EXPECT_EQ(call.execute(), CONVNORM_OK) << convnorm_last_error();
  EXPECT_EQ(call.fault(), "");
}

TEST_F(Calls, PacksFromHostMemoryToo) {
  OnDevice call;
  std::vector<std::byte> from_device(call.packed->size()), from_host(call.packed->size());
  call.packed->copy_to(from_device.data());
  EXPECT_EQ(call.pack(call.in.w.data(), stream_), CONVNORM_OK) << convnorm_last_error();
  cudaStreamSynchronize(stream_);
  call.packed->copy_to(from_host.data());
  EXPECT_EQ(from_device, from_host);
}

// The host cannot see what was packed without waiting, so the kernels look, and all of y says so.
TEST_F(Calls, AnotherPlansWeightGivesNaN) {
  OnDevice call, other(std::string(kS1) + ",post=relu");
  EXPECT_EQ(convnorm_check_packed(call.plan, call.packed->data(), nullptr), CONVNORM_OK) << convnorm_last_error();
  call.tensors.packed_weight = other.packed->data();
  EXPECT_EQ(call.execute(), CONVNORM_OK);
  for (const double value : call.result()) ASSERT_TRUE(std::isnan(value));
  EXPECT_EQ(convnorm_check_packed(call.plan, other.packed->data(), nullptr), CONVNORM_PACKED_MISMATCH);
  EXPECT_THAT(convnorm_last_error(), HasSubstr("another plan"));
}

TEST_F(Calls, LengthsAreHeldInsideTheirSample) {
  OnDevice call(std::string(kS1) + ",lengths=1");
  const std::vector<int64_t> wild = {-3, 1000}, held = {0, call.in.problem.l};
  const DeviceBlock given(wild.data(), wild.size() * sizeof(int64_t));
  call.tensors.lengths = reinterpret_cast<const int64_t*>(given.data());
  ASSERT_EQ(call.execute(), CONVNORM_OK) << convnorm_last_error();
  call.in.lengths = held;
  EXPECT_EQ(call.fault(), "");
}

TEST_F(Calls, AnotherArchitectureIsRefused) {
  const Inputs in = make_inputs(kS1);
  const convnorm_plan_options options{.device = CONVNORM_CUDA, .threads = 0, .path = nullptr, .target = "sm_10"};
  convnorm_plan* plan = nullptr;
  EXPECT_EQ(convnorm_plan_create(&in.problem, &options, &plan), CONVNORM_UNSUPPORTED);
  EXPECT_THAT(convnorm_last_error(), AllOf(HasSubstr("sm_10"), HasSubstr("leave the target open")));
}

TEST_F(Calls, TheSameBitsAHundredTimes) {
  OnDevice call("n=3,c=40,l=301,o=64,k=5,p=2,g=2,bias=1,post=gelu");
  ASSERT_EQ(call.execute(), CONVNORM_OK) << convnorm_last_error();
  const std::vector<double> first = call.result();
  for (int round = 0; round < 100; ++round) {
    ASSERT_EQ(call.execute(round % 2 == 0 ? stream_ : nullptr), CONVNORM_OK);
    ASSERT_EQ(call.result(), first) << round;
  }
}

}  // namespace
}  // namespace convnorm::test
