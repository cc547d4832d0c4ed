// How a convolution is cut: nothing is left out, nothing is done twice, nothing is read beyond what is packed.
#include "kernels/cpu/geometry.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "kernel_test.hpp"
#include "kernels/cpu/convolve.hpp"
#include "kernels/cpu/run.hpp"
#include "support/pools.hpp"

namespace convnorm::test {
namespace {

constexpr const char* kLines[] = {
    "n=1,c=1,l=1,o=1,k=1,g=1",
    "n=1,c=5,l=33,o=7,k=3,p=1,g=0",
    "n=1,c=300,l=65,o=13,k=5,p=2,g=13",   // several chunks of channels
    "n=1,c=2,l=900,o=6,k=600,g=2",        // several chunks of taps
    "n=1,c=3,l=9000,o=6,k=3,d=3000,g=2",  // taps far apart
    "n=1,c=3,l=9999,o=6,k=2,d=4999,g=2",  // further than one chunk may span
    "n=1,c=7,l=101,o=12,k=8,s=4,p=2,g=4",
    "n=1,c=7,l=101,o=12,k=5,s=3,d=2,g=4",
    "n=1,c=7,l=401,o=12,k=3,s=16,g=4",       // fetched phase by phase
    "n=1,c=24,l=77,o=24,k=3,cg=24,p=1,g=1",  // one channel per conv group
    "n=1,c=6,l=77,o=12,k=3,cg=6,p=1,g=1",    // two
    "n=1,c=12,l=77,o=36,k=3,cg=3,p=1,g=4",
    "n=1,c=10,l=700,o=34,k=3,p=1,g=17,post=glu",
};

class GeometryTest : public KernelTest {
 protected:
  template <class Use>
  void for_each_geometry(const Use& use) {
    for (const char* line : kLines) {
      SCOPED_TRACE(line);
      const Problem p = parse_problem(line);
      const int64_t half = p.o / (has_post(p, CONVNORM_GLU) ? 2 : 1);
      for (const int64_t rows : std::set<int64_t>{1, std::min<int64_t>(5, half), half})
        use(cpu::Geometry(p, kernels(), rows));
    }
  }
};

TEST_P(GeometryTest, ChunksPartitionTheSum) {
  for_each_geometry([](const cpu::Geometry& g) {
    std::set<std::pair<int64_t, int64_t>> seen;
    int64_t steps = 0;
    for (int64_t i = 0; i < g.chunks(); ++i) {
      const cpu::Chunk chunk = g.chunk(i);
      EXPECT_EQ(chunk.steps_before, steps);
      steps += chunk.channels * chunk.taps;
      for (int64_t c = chunk.channel; c < chunk.channel + chunk.channels; ++c) {
        for (int64_t t = chunk.tap; t < chunk.tap + chunk.taps; ++t) EXPECT_TRUE(seen.emplace(c, t).second);
      }
    }
    EXPECT_EQ(steps, g.steps);
    EXPECT_EQ(static_cast<int64_t>(seen.size()), g.sizes.c_per_conv_group * g.problem.k);
    EXPECT_LT(seen.rbegin()->first, g.sizes.c_per_conv_group);
    EXPECT_LT(seen.rbegin()->second, g.problem.k);
  });
}

TEST_P(GeometryTest, BlocksAndSegmentsPartitionTheRows) {
  for_each_geometry([](const cpu::Geometry& g) {
    int64_t rows = 0;
    for (int64_t i = 0; i < g.blocks(); ++i) {
      const cpu::Block block = g.block(i);
      EXPECT_EQ(block.first, rows);
      rows += block.rows;
      for (int64_t o = block.first; o < block.first + block.rows;) {
        const int64_t segment = g.segment_rows(o, block.first + block.rows);
        ASSERT_GE(segment, 1);
        EXPECT_EQ(o / g.sizes.o_per_conv_group, (o + segment - 1) / g.sizes.o_per_conv_group)
            << "a segment has one conv group";
        o += segment;
      }
    }
    EXPECT_EQ(rows * g.halves, g.problem.o);
  });
}

TEST_P(GeometryTest, PackingKeepsEachWeightOnce) {
  for_each_geometry([](const cpu::Geometry& g) {
    std::vector<float> weight(static_cast<size_t>(g.packed_floats()));
    std::iota(weight.begin(), weight.end(), 1.0f);
    Row packed(g.packed_floats());
    for (int64_t i = 0; i < g.blocks() * g.halves; ++i) {
      cpu::Block block = g.block(i % g.blocks());
      block.first += i / g.blocks() * g.half;
      g.pack_block(weight.data(), block, packed.data());
    }
    EXPECT_TRUE(packed.bands_intact());
    std::vector<float> sorted = packed.values();
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, weight);
  });
}

TEST_P(GeometryTest, EveryTapStaysInsideItsPhase) {
  for_each_geometry([](const cpu::Geometry& g) {
    EXPECT_EQ(g.strip % g.panel, 0);
    EXPECT_GE(g.strip, g.panel);
    EXPECT_LE(g.strip, std::max(cpu::kStatisticsBlock, g.panel));
    EXPECT_EQ(static_cast<int64_t>(g.tap_offset.size()), g.tap_chunk);
    for (const int64_t offset : g.tap_offset) EXPECT_LE(offset % g.phase_row + g.strip, g.phase_row);
    for (const int64_t offset : g.tap_offset) EXPECT_LE(offset + g.strip, g.x_row);
    EXPECT_LE(g.channel_chunk * g.x_row + g.line, cpu::Convolver::scratch_floats(g));
  });
}

// Each packed value by the tap that reads it.
TEST_P(GeometryTest, PackedInputsAreWhereTheTapsLook) {
  for_each_geometry([](const cpu::Geometry& g) {
    const Problem& p = g.problem;
    std::vector<float> x(static_cast<size_t>(g.sizes.x_elements));
    std::iota(x.begin(), x.end(), 1.0f);
    Row inputs(g.channel_chunk * g.x_row), line(g.line);
    const int64_t conv_group = p.conv_groups - 1;
    for (int64_t i = 0; i < g.chunks(); ++i) {
      const cpu::Chunk chunk = g.chunk(i);
      for (int64_t begin = 0; begin < g.sizes.l_out; begin += g.strip) {
        cpu::pack_inputs(g, x.data(), 0, p.l, conv_group, chunk, begin, inputs.data(), line.data());
        for (int64_t c = 0; c < chunk.channels; ++c) {
          for (int64_t t = 0; t < chunk.taps; ++t) {
            for (int64_t q = 0; q < std::min(g.strip, g.sizes.l_out - begin); ++q) {
              const int64_t at = (begin + q) * p.stride + (chunk.tap + t) * p.dilation - p.pad_left;
              const int64_t row = conv_group * g.sizes.c_per_conv_group + chunk.channel + c;
              const float want = at < 0 || at >= p.l ? 0 : x[static_cast<size_t>(row * p.l + at)];
              ASSERT_EQ(inputs.data()[c * g.x_row + g.tap_offset[static_cast<size_t>(t)] + q], want)
                  << "channel " << row << ", tap " << chunk.tap + t << ", output " << begin + q;
            }
          }
        }
      }
    }
    EXPECT_TRUE(inputs.bands_intact() && line.bands_intact());
  });
}

CONVNORM_INSTANTIATE_KERNEL_TEST(GeometryTest);

TEST(Deal, GivesEachTaskOnceWhateverThePool) {
  for (const convnorm_parallel_for pool : {in_order, reversed, thread_each}) {
    for (const int threads : {1, 2, 7}) {
      for (const int64_t tasks : {0, 1, 5, 100}) {
        std::vector<std::atomic<int>> done(static_cast<size_t>(tasks));
        cpu::deal(Parallel(pool, nullptr), threads, tasks, [&](int worker, const auto& next) {
          EXPECT_LT(worker, threads);
          for (int64_t task = next(); task >= 0; task = next()) ++done[static_cast<size_t>(task)];
        });
        for (const auto& count : done) EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(Arena, CutsAlignedPiecesThatDoNotOverlap) {
  Guarded memory(1024);
  cpu::Arena counting, cutting(memory.data());
  for (const int64_t count : {1, 16, 0, 33}) {
    const auto before = static_cast<int64_t>(cutting.used());
    EXPECT_EQ(counting.take<float>(count), nullptr);
    float* piece = cutting.take<float>(count);
    EXPECT_EQ(reinterpret_cast<std::byte*>(piece), memory.data() + before);
    EXPECT_EQ(before % 64, 0);
    EXPECT_GE(static_cast<int64_t>(cutting.used()), before + count * 4);
  }
  EXPECT_EQ(counting.used(), cutting.used());
}

}  // namespace
}  // namespace convnorm::test
