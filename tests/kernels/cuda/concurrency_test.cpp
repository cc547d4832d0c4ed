// Launches beside other launches. CTAs that exchange statistics wait for one another: whatever else runs, they must not
// wait for ever, nor take another launch's words for theirs. Every result is compared to the bit with that of a call
// that had the GPU to itself.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "kernels/cuda/device_work.hpp"
#include "kernels/cuda/on_device.hpp"

namespace convnorm::test {
namespace {

using testing::HasSubstr;

// Problems whose CTAs exchange: several tiles a group, several groups a tile, more domains than CTAs, tiles past the
// end of their sample; clusters, and words where a group is larger than a cluster, for several tiles of samples too.
// The last three take several launches instead.
constexpr std::pair<const char*, const char*> kExchanging[] = {
    {"sm90_onchip", "n=3,c=32,l=300,o=128,k=3,p=1,g=4,bias=1,post=silu"},
    {"sm90_onchip", "n=2,c=16,l=1000,o=256,k=1,g=1,bias=1"},
    {"sm90_onchip", "n=140,c=16,l=130,o=64,k=1,g=2,bias=1"},
    {"sm90_stream", "n=1,c=512,l=16,o=512,k=5,p=2,g=8,bias=1,post=mish"},
    {"sm90_onchip", "n=100,c=8,l=400,o=64,k=1,g=1,bias=1,lengths=1"},
    {"sm90_stream", "n=1,c=512,l=4,o=1024,k=5,p=2,g=1,bias=1,post=mish"},
    {"sm90_stream", "n=29,c=32,l=16,o=256,k=3,p=1,g=1,bias=1,post=mish"},
    {"sm90_in_turn", "n=5,c=24,l=3000,o=128,k=3,p=1,g=4,bias=1,post=silu"},
    {"depthwise", "n=2,c=64,l=3000,o=64,k=3,p=1,cg=64,g=1,bias=1"},
    {"depthwise", "n=2,c=64,l=3000,o=64,k=3,d=8,p=8,cg=64,g=1,bias=1"},
    {"recompute", "n=2,c=1,l=16000,o=64,k=10,s=5,g=64,bias=1,post=gelu"},
    {"moments", "n=2,c=1,l=16000,o=64,k=10,s=5,g=64,bias=1,post=gelu"},
    {"sm90_two_pass", "n=2,c=40,l=1040,o=128,k=8,s=4,p=2,g=4,bias=1,post=silu"},
    {"any_arch", "n=2,c=16,l=300,o=64,k=3,p=1,g=2,bias=1,post=gelu"},
};

// Calls of one problem, each of which is compared on the device.
class Series {
 public:
  Series(const char* path, const std::string& line) : call_(line, path) {
    EXPECT_EQ(call_.execute(), CONVNORM_OK) << convnorm_last_error();
    cudaDeviceSynchronize();
    alone_.resize(call_.y->size());
    call_.y->copy_to(alone_.data());
    expected_ = std::make_unique<DeviceBlock>(alone_.data(), alone_.size());
    const unsigned none = 0;
    different_ = std::make_unique<DeviceBlock>(&none, sizeof none);
  }

  std::string path() const { return convnorm_plan_path(call_.plan); }

  // Overwrites y, calls, and compares.
  void enqueue(cudaStream_t stream) {
    EXPECT_EQ(cudaMemsetAsync(call_.y->data(), 0xff, call_.y->size(), stream), cudaSuccess);
    EXPECT_EQ(call_.execute(stream), CONVNORM_OK) << convnorm_last_error();
    EXPECT_EQ(compare_words(call_.y->data(), expected_->data(), alone_.size() / sizeof(float), counter(), stream),
              cudaSuccess);
  }

  // Since the last time: in how many values results differed from those of the call that ran alone.
  unsigned different() {
    unsigned count = 0;
    different_->copy_to(&count);
    cudaMemset(different_->data(), 0, sizeof count);
    return count;
  }

  OnDevice& call() { return call_; }
  const std::vector<std::byte>& alone() const { return alone_; }

 private:
  unsigned* counter() { return reinterpret_cast<unsigned*>(different_->data()); }

  OnDevice call_;
  std::vector<std::byte> alone_;
  std::unique_ptr<DeviceBlock> expected_, different_;
};

class Concurrency : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no GPU";
    for (cudaStream_t& stream : streams_)
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    for (const auto& [path, line] : kExchanging) {
      if (!takes(path, line)) continue;
      series_.push_back(std::make_unique<Series>(path, line));
      ASSERT_EQ(series_.back()->path(), path);
      // Two plans of one problem need slots of their own as well.
      twins_.push_back(std::make_unique<Series>(path, line));
    }
  }
  void TearDown() override {
    for (const cudaStream_t stream : streams_) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
    EXPECT_EQ(device_count() == 0 ? cudaSuccess : cudaGetLastError(), cudaSuccess);
  }

  // An architecture has some of the paths; those that it has take these problems.
  static bool takes(const std::string& path, const char* line) {
    std::vector<std::string> all;
    for (int32_t i = 0; const char* name = convnorm_path_name(CONVNORM_CUDA, i); ++i) all.emplace_back(name);
    if (std::find(all.begin(), all.end(), path) == all.end()) return false;
    const Problem p = parse_problem(line);
    const convnorm_plan_options options{.device = CONVNORM_CUDA, .threads = 0, .path = path.c_str(), .target = nullptr};
    convnorm_plan* plan = nullptr;
    const bool taken = convnorm_plan_create(&p, &options, &plan) == CONVNORM_OK;
    convnorm_plan_destroy(plan);
    if (!taken) {
      EXPECT_THAT(convnorm_last_error(), testing::AnyOf(HasSubstr("compute capability"), HasSubstr("sm_80")));
    }
    return taken;
  }

  // Each series beside each other one and beside its twin.
  template <class Use>
  void for_each_pair(const Use& use) {
    for (size_t i = 0; i < series_.size(); ++i) {
      for (size_t j = i; j < series_.size(); ++j) {
        Series &one = *series_[i], &other = i == j ? *twins_[i] : *series_[j];
        SCOPED_TRACE(one.path() + " (" + std::to_string(i) + ") beside " + other.path() + " (" + std::to_string(j) +
                     ")");
        use(one, other);
        if (HasFailure()) return;
      }
    }
  }

  std::array<cudaStream_t, 4> streams_{};
  std::vector<std::unique_ptr<Series>> series_, twins_;
};

TEST_F(Concurrency, TheResultsAloneAreRight) {
  for (const auto& series : series_) EXPECT_EQ(series->call().fault(), "") << series->path();
}

TEST_F(Concurrency, TwoStreamsForThousandsOfRounds) {
  for_each_pair([&](Series& one, Series& other) {
    for (int i = 0; i < 3000; ++i) one.enqueue(streams_[0]), other.enqueue(streams_[1]);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(one.different(), 0);
    EXPECT_EQ(other.different(), 0);
  });
}

constexpr int kCallsOfAGraph = 16;

struct Graph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t work = nullptr;

  Graph(Series& series, cudaStream_t stream) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    for (int i = 0; i < kCallsOfAGraph; ++i) series.enqueue(stream);
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&work, graph, 0), cudaSuccess);
  }
  ~Graph() {
    if (work != nullptr) cudaGraphExecDestroy(work);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
};

TEST_F(Concurrency, TwoGraphsCapturedOnOneStreamReplayedSideBySide) {
  for_each_pair([&](Series& one, Series& other) {
    const Graph first(one, streams_[0]), second(other, streams_[0]);
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(cudaGraphLaunch(first.work, streams_[1]), cudaSuccess);
      ASSERT_EQ(cudaGraphLaunch(second.work, streams_[2]), cudaSuccess);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(one.different(), 0);
    EXPECT_EQ(other.different(), 0);
  });
}

// The graph's slot stays its own while eager calls go on in the stream that it was captured on.
TEST_F(Concurrency, AGraphBesideEagerCallsOfItsStream) {
  for_each_pair([&](Series& one, Series& other) {
    const Graph graph(one, streams_[0]);
    for (int round = 0; round < 20; ++round) {
      ASSERT_EQ(cudaGraphLaunch(graph.work, streams_[1]), cudaSuccess);
      for (int i = 0; i < kCallsOfAGraph; ++i) other.enqueue(streams_[0]);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(one.different(), 0);
    EXPECT_EQ(other.different(), 0);
  });
}

TEST_F(Concurrency, AGraphAfterItsInputsWereOverwritten) {
  for (const auto& series : series_) {
    SCOPED_TRACE(series->path());
    const Graph graph(*series, streams_[0]);
    OnDevice& call = series->call();
    const std::vector<float> before = call.in.x;
    const auto overwrite = [&] {
      cudaMemcpy(call.x->data(), call.in.x.data(), call.x->size(), cudaMemcpyHostToDevice);
      cudaDeviceSynchronize();  // it returns when the host's memory is free, and the stream does not wait for it
    };
    for (int round = 0; round < 3; ++round) {
      for (float& value : call.in.x) value = value * 0.5f + static_cast<float>(round);
      overwrite();
      ASSERT_EQ(cudaGraphLaunch(graph.work, streams_[0]), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      EXPECT_GT(series->different(), 0) << "nothing changed";
      if (round == 0) {
        EXPECT_EQ(call.fault(), "");
      }
    }
    call.in.x = before;
    overwrite();
    ASSERT_EQ(cudaGraphLaunch(graph.work, streams_[0]), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(series->different(), 0);
  }
}

// Four threads, each with a stream of its own and a y of its own, all of them with all plans.
TEST_F(Concurrency, B074_FourHostThreadsWithMixedShapesOnSharedPlans) {
  std::atomic<int> different = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < streams_.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 500; ++round) {
        Series& series = *series_[(static_cast<size_t>(round) + t) % series_.size()];
        // Threads that share a plan need workspaces of their own; here only one of them takes the plans that use any.
        if (series.call().workspace->size() > 0 && t > 0) continue;
        std::vector<std::byte> bytes(series.alone().size(), std::byte{0xff});
        const DeviceBlock y(bytes.data(), bytes.size());
        convnorm_tensors tensors = series.call().tensors;
        tensors.y = y.data();
        const convnorm_launch launch{.parallel_for = nullptr, .parallel_context = nullptr, .stream = streams_[t]};
        EXPECT_EQ(convnorm_execute(series.call().plan, &tensors, series.call().workspace->data(),
                                   series.call().workspace->size(), &launch),
                  CONVNORM_OK)
            << convnorm_last_error();
        cudaStreamSynchronize(streams_[t]);
        y.copy_to(bytes.data());
        different += bytes != series.alone();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

// The launch waits in its queue until it has all the multiprocessors that it needs, and is right then.
TEST_F(Concurrency, WhileAnotherKernelHoldsMostMultiprocessors) {
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  for (const auto& series : series_) {
    SCOPED_TRACE(series->path());
    for (const int left : {0, 1, 12}) {
      ASSERT_EQ(occupy(multiprocessors - left, 20000, streams_[0]), cudaSuccess);
      for (int i = 0; i < kCallsOfAGraph; ++i) series->enqueue(streams_[1]);
      // One more comes while the calls run.
      ASSERT_EQ(occupy(multiprocessors / 2, 2000, streams_[2]), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      EXPECT_EQ(series->different(), 0) << left;
    }
  }
}

// Time slices of two processes take a launch off the GPU and put it back.
TEST_F(Concurrency, BesideASecondProcess) {
  constexpr const char* kMark = "CONVNORM_TEST_SECOND_PROCESS";
  const bool second = std::getenv(kMark) != nullptr;
  std::thread other;
  std::atomic<int> status = 0;
  std::atomic<bool> ended = second;
  if (!second) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    other = std::thread([&, self] {
      status = std::system(
          (std::string(kMark) + "=1 '" + self + "' --gtest_filter=Concurrency.BesideASecondProcess > /dev/null 2>&1")
              .c_str());
      ended = true;
    });
  }
  for (int round = 0; round < 30 || !ended; ++round) {
    for (int i = 0; i < kCallsOfAGraph; ++i) {
      for (const auto& series : series_) series->enqueue(streams_[0]);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (const auto& series : series_) EXPECT_EQ(series->different(), 0) << series->path() << " in round " << round;
  }
  if (other.joinable()) other.join();
  EXPECT_EQ(status, 0) << "the second process";
}

}  // namespace
}  // namespace convnorm::test
