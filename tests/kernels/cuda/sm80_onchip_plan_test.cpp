// The planner of the one-wave kernel for mma.sync: what it promises about shared memory, chunks and teams holds for
// every layer on every kind of GPU, and what it refuses it refuses with a reason. Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/answers.hpp"
#include "kernels/cuda/limits.hpp"
#include "kernels/cuda/sm80_onchip/plan.hpp"
#include "operator/layers.hpp"

namespace convnorm::cuda::test {
namespace {

using sm80_onchip::choose_config;
using sm80_onchip::Config;
using sm80_onchip::SharedPlan;
using sm80_onchip::Wishes;
using testing::HasSubstr;

constexpr int kReserved = 1 << 10;  // bytes of shared memory that the system takes for each CTA

void check(const Problem& problem, const Config& c, const DeviceLimits& gpu) {
  SCOPED_TRACE(print_problem(problem) + " on " + gpu.name);
  const Sizes sizes(problem);
  const SharedPlan plan(c, static_cast<int>(element_size(problem.dtype)));
  EXPECT_LE(plan.bytes, gpu.shared_per_block_optin);
  EXPECT_LE(c.ctas_per_sm * (plan.bytes + kReserved), gpu.shared_per_sm);
  EXPECT_LE(c.ctas_per_sm, sm80_onchip::ctas_by_registers(c.tile_columns));
  EXPECT_EQ(plan.statistics % 16, 0);
  EXPECT_EQ(plan.tasks % 16, 0);
  EXPECT_EQ(plan.staging % 16, 0);
  EXPECT_EQ(plan.first_tag % 8, 0);
  EXPECT_EQ(plan.x_part_bytes % 128, 0);  // eight rows are an operand
  // All CTAs run at the same time.
  EXPECT_LE(c.ctas(), c.ctas_per_sm * gpu.sm_count);
  EXPECT_GE(int64_t{c.teams} * c.iterations, c.domains);
  // Every channel, item of x, channel of y, output and sample belongs to a chunk, a round, a block, a tile and a
  // domain.
  EXPECT_GE(int64_t{16} * c.chunk_k16 * c.chunks, sizes.c_per_conv_group);
  EXPECT_GE(c.rounds * sm80_onchip::kThreads * sm80_onchip::items_of(c.parts), c.slot_items);
  EXPECT_GE(int64_t{kBlockRows} * c.blocks, problem.o);
  EXPECT_GE(int64_t{c.tile_positions} * c.column_tiles, sizes.l_out);
  EXPECT_GE(int64_t{c.samples} * c.sample_blocks, problem.n);
  EXPECT_EQ(c.samples * c.tile_positions, c.tile_columns);
  // The last tap of the last position reads inside the slot.
  EXPECT_LE(int64_t{problem.stride} * c.phase_rows, c.rows());
  // A group whose rows or columns lie in several tiles lies in one domain.
  if (has_norm(problem)) {
    EXPECT_EQ(c.domain_column_tiles, c.column_tiles);
    const int64_t domain_rows = int64_t{kBlockRows} * c.warpgroups * c.domain_row_tiles;
    EXPECT_TRUE(domain_rows % sizes.o_per_norm_group == 0 || c.row_domains.value == 1);
  }
}

TEST(Sm80Onchip, PlansHoldWhatTheKernelAssumesOnEveryGpu) {
  for (const DeviceLimits& gpu : {a100(), rtx_3090(), rtx_4090(), h200(), rtx_5090()}) {
    for (const auto& [name, layer] : convnorm::test::layers()) {
      for (const convnorm_dtype dtype : {CONVNORM_F32, CONVNORM_F16, CONVNORM_BF16}) {
        for (const convnorm_precision precision : {CONVNORM_HIGHEST, CONVNORM_HIGH, CONVNORM_MEDIUM}) {
          Problem problem = layer;
          problem.dtype = dtype;
          problem.precision = precision;
          for (const Wishes wishes : {Wishes{}, Wishes{128}, Wishes{64}}) {
            const auto answer = choose_config(problem, Sizes(problem), gpu, wishes);
            if (const auto* config = std::get_if<Config>(&answer)) {
              check(problem, *config, gpu);
            } else {
              EXPECT_FALSE(std::get<std::string>(answer).empty());
            }
          }
        }
      }
    }
  }
}

Config config_of(const char* line, const DeviceLimits& gpu, const Wishes& wishes = {}) {
  const Problem problem = parse_problem(line);
  return std::get<Config>(choose_config(problem, Sizes(problem), gpu, wishes));
}

constexpr char kFirst[] = "n=16,c=128,l=1024,o=256,k=3,p=1,g=32";  // the layer that was asked for first

TEST(Sm80Onchip, ComputesTheFirstLayerInOneWaveOfAnH200) {
  const Config c = config_of(kFirst, h200());
  EXPECT_EQ(c.tile_columns, 128);
  EXPECT_EQ(c.ctas(), 256);
  EXPECT_EQ(c.iterations, 1);
  EXPECT_TRUE(c.by_warps);
}

TEST(Sm80Onchip, HasRoomForTwoCtasWhereAnSmHasOneHundredKilobytes) {
  for (const DeviceLimits& gpu : {rtx_3090(), rtx_4090(), rtx_5090()}) {
    EXPECT_EQ(config_of(kFirst, gpu, {128}).ctas_per_sm, 2) << gpu.name;
  }
}

TEST(Sm80Onchip, GivesAnSmFewerCtasWhereRowsOfXAreMany) {
  EXPECT_EQ(config_of("n=4,c=64,l=4000,o=64,k=9,s=4,p=4,g=8", rtx_3090(), {128}).ctas_per_sm, 1);
  EXPECT_EQ(config_of("n=4,c=64,l=4000,o=64,k=9,s=4,p=4,g=8", h200(), {128}).ctas_per_sm, 2);
}

TEST(Sm80Onchip, GivesEveryTileTheInputsOfItsConvGroup) {
  const Config c = config_of("n=2,c=512,l=500,o=512,k=3,p=1,cg=2,g=8", h200());
  EXPECT_EQ(c.row_tiles, 4);
  EXPECT_EQ(c.conv_group_tiles.value, 2u);
  EXPECT_EQ(c.chunks, 256 / 16);
}

TEST(Sm80Onchip, GivesValuesAndGatesOfAGluToTheSameThreads) {
  const Config c = config_of("n=4,c=96,l=860,o=768,k=1,g=4,bias=1,post=glu", h200());
  EXPECT_TRUE(c.halves);
  EXPECT_FALSE(c.by_warps);
  EXPECT_EQ(c.row_tiles, 6);
  for (int block = 0; block < c.blocks; ++block) {
    EXPECT_EQ(c.block_of(c.row_tile_of(block), c.place_of(block)), block);
  }
  EXPECT_EQ(c.block_of(2, 1) - c.block_of(2, 0), 768 / 2 / kBlockRows);
  // 192 channels of a group are three tiles of 64 values; one group of all has values and gates.
  EXPECT_EQ(c.domain_row_tiles, 3);
  EXPECT_EQ(config_of("n=4,c=96,l=860,o=768,k=1,g=1,post=glu", h200()).domain_row_tiles, 6);
}

// A sample's length ends its rows, not that of the batch.
TEST(Sm80Onchip, HasNoPlainRowsWhereSamplesHaveLengths) {
  EXPECT_TRUE(config_of("n=4,c=64,l=256,o=64,k=3,p=1,g=4", h200()).plain_rows);
  EXPECT_FALSE(config_of("n=4,c=64,l=256,o=64,k=3,p=1,g=4,lengths=1", h200()).plain_rows);
}

TEST(Sm80Onchip, TakesChannelsLastWithoutStagingOrPlainRows) {
  for (const char* line : {"n=2,c=64,l=256,o=64,k=3,p=1,g=4,layout=nlc", "n=8,c=64,l=15,o=64,k=3,p=1,g=4,layout=nlc"}) {
    const Config c = config_of(line, h200());
    EXPECT_FALSE(c.staged) << line;
    EXPECT_FALSE(c.by_warps) << line;
    EXPECT_FALSE(c.plain_rows) << line;
  }
}

TEST(Sm80Onchip, SaysWhyItRefuses) {
  const auto reason = [](const char* line, const DeviceLimits& gpu = h200()) {
    const Problem problem = parse_problem(line);
    return refusal_of(choose_config(problem, Sizes(problem), gpu));
  };
  EXPECT_THAT(reason("n=1,c=64,l=64,o=64,k=3,g=4,cg=2"), HasSubstr("cg=2"));
  EXPECT_THAT(reason("n=1,c=8,l=64,o=8,k=3,g=4,post=glu"), HasSubstr("glu"));
  EXPECT_THAT(reason("n=0,c=8,l=64,o=8,k=3,g=4"), HasSubstr("nothing"));
  EXPECT_THAT(reason("n=1,c=64,l=2000000,o=64,k=7,p=3,g=8"), HasSubstr("SMs"));
  EXPECT_THAT(reason("n=1,c=8,l=70000,o=8,k=3,g=4,d=30000"), HasSubstr("rows"));
  EXPECT_THAT(reason("n=1,c=64,l=4000,o=64,k=16,s=16,g=8", rtx_3090()), HasSubstr("shared memory"));
  EXPECT_THAT(reason("n=1,c=8,l=64,o=8,k=3,g=4", t4()), HasSubstr("sm_75"));
}

}  // namespace
}  // namespace convnorm::cuda::test
