// Register tiles at every height and ragged end, on integers: every product and sum is exact, so results must be equal.
#include <algorithm>
#include <cmath>

#include "descriptor/elements.hpp"
#include "kernel_test.hpp"

namespace convnorm::test {
namespace {

constexpr int64_t kChannels = 3, kTaps = 2;
constexpr int64_t kTapOffset[kTaps] = {0, 5};
constexpr int64_t kSteps = kChannels * kTaps;

float integer(int64_t i) { return static_cast<float>((37 * i + 11) % 17 - 8); }

std::vector<float> integers(int64_t count, int64_t from = 0) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = integer(from + i);
  return values;
}

float weight(int64_t row, int64_t step) { return integer(row * kSteps + step); }

class TileTest : public KernelTest {
 protected:
  // Two chunks of one channel-step run each, the second on top of the first.
  void row_tiles(void (*conv)(const cpu::RowConv&), int64_t rows, int64_t most, int64_t panel, int64_t panels,
                 bool with_bias) {
    const int64_t positions = panels * panel, x_row = positions + kTapOffset[1], z_row = positions + 3;
    Row x(integers(kChannels * x_row));
    Row bias(integers(rows, 5));
    std::vector<float> w;
    for (int64_t tile = 0, row = 0; row < rows; row += cpu::tile_height(rows, most, tile++)) {
      const int64_t height = cpu::tile_height(rows, most, tile);
      for (int64_t step = 0; step < kSteps; ++step) {
        for (int64_t m = 0; m < height; ++m) w.push_back(weight(row + m, step));
      }
    }
    Row packed(w);
    // Nothing may be written between the rows nor past the last.
    Row z((rows - 1) * z_row + positions);
    const std::vector<float> poison = z.values();
    const auto chunk = [&](int64_t channel, int64_t channels) {
      conv({.x = x.data() + channel * x_row,
            .x_row = x_row,
            .tap_offset = kTapOffset,
            .channels = channels,
            .taps = kTaps,
            .w = packed.data(),
            .steps = kSteps,
            .steps_before = channel * kTaps,
            .rows = rows,
            .panels = panels,
            .z = z.data(),
            .z_row = z_row,
            .bias = with_bias && channel == 0 ? bias.data() : nullptr,
            .first = channel == 0});
    };
    chunk(0, 1);
    chunk(1, kChannels - 1);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t q = 0; q < positions; ++q) {
        float want = with_bias ? integer(5 + r) : 0;
        for (int64_t step = 0; step < kSteps; ++step) {
          want += weight(r, step) * x.data()[step / kTaps * x_row + q + kTapOffset[step % kTaps]];
        }
        ASSERT_EQ(z.data()[r * z_row + q], want) << rows << " rows, row " << r << ", position " << q;
      }
      for (int64_t q = positions; q < z_row && r + 1 < rows; ++q) {
        ASSERT_TRUE(std::isnan(z.data()[r * z_row + q])) << "between rows " << r << " and " << r + 1;
      }
    }
    EXPECT_TRUE(z.bands_intact() && x.bands_intact() && packed.bands_intact());
  }

  template <class Element>
  void channel_tiles(convnorm_dtype dtype) {
    const int64_t block = kernels().channel_block;
    Guarded w(static_cast<size_t>(kSteps * block) * sizeof(Element), sizeof(Element));
    for (int64_t i = 0; i < kSteps * block; ++i) {
      const Element element(static_cast<double>(integer(i)));
      std::memcpy(w.data() + static_cast<size_t>(i) * sizeof(Element), &element, sizeof(Element));
    }
    for (int64_t positions = 1; positions <= 2 * kernels().wide_rows + 1; ++positions) {
      const int64_t x_row = positions + kTapOffset[1];
      Row x(integers(kChannels * x_row));
      Row z(integers(positions * block, 3));
      kernels().conv_channels({.x = x.data(),
                               .x_row = x_row,
                               .tap_offset = kTapOffset,
                               .channels = kChannels,
                               .taps = kTaps,
                               .w = w.data(),
                               .w_dtype = dtype,
                               .positions = positions,
                               .z = z.data()});
      for (int64_t m = 0; m < positions; ++m) {
        for (int64_t lane = 0; lane < block; ++lane) {
          float want = integer(3 + m * block + lane);
          for (int64_t step = 0; step < kSteps; ++step) {
            want += integer(step * block + lane) * x.data()[step / kTaps * x_row + m + kTapOffset[step % kTaps]];
          }
          ASSERT_EQ(z.data()[m * block + lane], want) << positions << " positions, " << m << ", lane " << lane;
        }
      }
      EXPECT_TRUE(z.bands_intact() && x.bands_intact() && w.bands_intact());
    }
  }
};

TEST(TileHeight, DealsAllRowsEvenly) {
  for (int64_t most = 1; most <= 8; ++most) {
    for (int64_t rows = 1; rows <= 100; ++rows) {
      int64_t sum = 0, least = most, largest = 0;
      for (int64_t tile = 0; tile < (rows + most - 1) / most; ++tile) {
        const int64_t height = cpu::tile_height(rows, most, tile);
        sum += height, least = std::min(least, height), largest = std::max(largest, height);
      }
      EXPECT_EQ(sum, rows);
      EXPECT_GE(least, 1);
      EXPECT_LE(largest, most);
      EXPECT_LE(largest - least, 1);
    }
  }
}

TEST_P(TileTest, WideTilesOfEveryHeight) {
  for (int64_t rows = 1; rows <= 2 * kernels().wide_rows + 1; ++rows) {
    for (const int64_t panels : {1, 3}) {
      row_tiles(kernels().conv_wide, rows, kernels().wide_rows, kernels().wide_panel, panels, rows % 2 == 0);
    }
  }
}

TEST_P(TileTest, NarrowTiles) {
  for (const int64_t rows : {1, 2, 3}) {
    for (const int64_t panels : {1, 2})
      row_tiles(kernels().conv_narrow, rows, 1, kernels().narrow_panel, panels, rows % 2 == 1);
  }
}

TEST_P(TileTest, ChannelTilesOfEveryHeight) {
  channel_tiles<float>(CONVNORM_F32);
  channel_tiles<Float16>(CONVNORM_F16);
  channel_tiles<BFloat16>(CONVNORM_BF16);
}

CONVNORM_INSTANTIATE_KERNEL_TEST(TileTest);

}  // namespace
}  // namespace convnorm::test
