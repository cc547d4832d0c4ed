// What is done to a row: fetched with padding, dealt to phases, measured, normalised, combined, stored.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "descriptor/elements.hpp"
#include "kernel_test.hpp"

namespace convnorm::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kLongestTail = 67;  // past two vectors of sixteen lanes twice

std::vector<float> noise(int64_t count, float mean, float spread, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = mean + spread * (static_cast<float>(random() >> 8) / (1 << 23) - 1);
  return values;
}

struct Exact {
  long double mean = 0, m2 = 0;
  explicit Exact(const std::vector<float>& values) {
    for (const float value : values) mean += value;
    mean /= static_cast<long double>(values.size());
    for (const float value : values) m2 += (value - mean) * (value - mean);
  }
};

class RowTest : public KernelTest {
 protected:
  cpu::Moments moments(const std::vector<float>& values) {
    Row row(values);
    return kernels().row_moments(row.data(), static_cast<int64_t>(values.size()));
  }

  // In blocks merged in order, as every strategy does.
  cpu::Moments merged(const std::vector<float>& values, int64_t block) {
    cpu::Moments total;
    for (int64_t at = 0; at < static_cast<int64_t>(values.size()); at += block) {
      cpu::merge(total,
                 kernels().row_moments(values.data() + at, std::min(block, static_cast<int64_t>(values.size()) - at)));
    }
    return total;
  }

  static void expect_close(const cpu::Moments& m, const std::vector<float>& values, double tolerance) {
    const Exact exact(values);
    const auto count = static_cast<double>(values.size());
    EXPECT_EQ(m.count, count);
    const auto deviation = static_cast<double>(std::sqrt(exact.m2 / static_cast<long double>(values.size())));
    EXPECT_LE(std::fabs(static_cast<double>(m.mean - exact.mean)), tolerance * deviation + 1e-15 * std::fabs(m.mean))
        << count;
    EXPECT_LE(std::fabs(static_cast<double>(m.m2 - exact.m2)), tolerance * static_cast<double>(exact.m2)) << count;
  }
};

TEST_P(RowTest, MomentsOfEveryCount) {
  for (int64_t count = 1; count <= kLongestTail; ++count) {
    expect_close(moments(noise(count, 0, 1)), noise(count, 0, 1), 1e-6);
    expect_close(moments(noise(count, 1000, 1)), noise(count, 1000, 1), 1e-6);
    expect_close(moments(noise(count, 0, 1e30f)), noise(count, 0, 1e30f), 1e-6);
    expect_close(moments(noise(count, 0, 3e38f)), noise(count, 0, 3e38f), 1e-6);
  }
  EXPECT_EQ(moments({}).count, 0);
}

TEST_P(RowTest, MomentsOfEqualValuesAreExact) {
  for (const float value : {0.0f, 0.1f, 3.3f, -1e30f, 1e-30f}) {
    for (int64_t count = 1; count <= kLongestTail; ++count) {
      const cpu::Moments m = moments(std::vector<float>(static_cast<size_t>(count), value));
      EXPECT_NEAR(m.mean, value, 1e-12 * std::fabs(value)) << count;
      EXPECT_LE(m.m2, 1e-13 * value * value * static_cast<double>(count)) << count;
    }
  }
}

TEST_P(RowTest, MomentsOfPairsRoundAPowerOfTwoAreExact) {
  for (int64_t count = 2; count <= 512; count += 2) {
    std::vector<float> values;
    for (int64_t i = 0; i < count / 2; ++i) {
      const float d = static_cast<float>(i % 9) / 8;
      values.insert(values.end(), {4 + d, 4 - d});
    }
    const cpu::Moments m = moments(values);
    EXPECT_EQ(m.mean, 4) << count;
    EXPECT_EQ(m.m2, static_cast<double>(Exact(values).m2)) << count;
  }
}

TEST_P(RowTest, MomentsOfTenMillionValuesFarFromZero) {
  const std::vector<float> values = noise(10'000'000, 1000, 1);
  expect_close(merged(values, 512), values, 1e-6);
}

TEST_P(RowTest, MomentsKeepNaNAndInfinity) {
  for (int64_t count = 1; count <= kLongestTail; ++count) {
    for (const float odd : {kNaN, HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> values = noise(count, 0, 1);
      values[static_cast<size_t>(count * 7 % count)] = odd;
      values.back() = odd;
      const cpu::Moments m = moments(values);
      EXPECT_FALSE(std::isfinite(m.mean)) << count;
      EXPECT_TRUE(std::isnan(m.m2)) << count << " " << odd << " " << m.m2;
    }
  }
}

TEST(Moments, MergeWithNothingChangesNothing) {
  cpu::Moments m{3, 5, 7};
  cpu::merge(m, {});
  EXPECT_EQ(m.count, 3);
  cpu::Moments empty;
  cpu::merge(empty, m);
  EXPECT_EQ(empty.mean, 5);
  EXPECT_EQ(empty.m2, 7);
}

// The padded row by its definition; beyond the padding zeros, so that no stray value is computed with.
float padded_value(const cpu::FetchRow& r, const std::vector<float>& row, int64_t i) {
  if (i >= 0 && i < r.length) return row[static_cast<size_t>(i)];
  if (i < -r.reach_left || i >= r.length + r.reach_right || r.length == 0 || r.pad == CONVNORM_ZEROS) return 0;
  if (r.pad == CONVNORM_REPLICATE) return i < 0 ? row.front() : row.back();
  const int64_t j = i < 0 ? -i : 2 * r.length - 2 - i;
  return j >= 0 && j < r.length ? row[static_cast<size_t>(j)] : 0;
}

TEST_P(RowTest, FetchesWithEveryPaddingStrideLayoutAndType) {
  for (const convnorm_dtype dtype : {CONVNORM_F32, CONVNORM_F16, CONVNORM_BF16}) {
    for (const convnorm_padding pad : {CONVNORM_ZEROS, CONVNORM_REFLECT, CONVNORM_REPLICATE}) {
      for (const int64_t length : {0, 1, 2, 7, 33, 130}) {
        std::vector<float> values(static_cast<size_t>(length));
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
        for (const int64_t step : {1, 3}) {
          const auto element = static_cast<size_t>(dtype == CONVNORM_F32 ? 4 : 2);
          // A row of channels last ends with its last element, not with a whole step.
          const int64_t held = length == 0 ? 0 : (length - 1) * step + 1;
          Guarded x(static_cast<size_t>(held) * element, element);
          with_element_type(dtype, [&](auto type) {
            for (int64_t i = 0; i < length; ++i) {
              const decltype(type) value(static_cast<double>(i + 1));
              std::memcpy(x.data() + static_cast<size_t>(i * step) * element, &value, element);
            }
          });
          for (const int64_t reach : {0, 1, 3}) {
            for (const int64_t every : {1, 2, 3, 9}) {
              for (const int64_t first : {-140, -4, -1, 0, 1, 6, 33, 200}) {
                for (const int64_t count : {1, 2, 17, 67}) {
                  const cpu::FetchRow r{.x = x.data(),
                                        .step = step,
                                        .length = length,
                                        .first = first,
                                        .every = every,
                                        .count = count,
                                        .reach_left = reach,
                                        .reach_right = reach / 2,
                                        .dtype = dtype,
                                        .pad = pad};
                  Row row(count);
                  kernels().fetch_row(r, row.data());
                  for (int64_t j = 0; j < count; ++j) {
                    ASSERT_EQ(row.data()[j], padded_value(r, values, first + j * every))
                        << "pad " << pad << ", length " << length << ", step " << step << ", first " << first
                        << ", every " << every << ", reach " << reach << ", element " << j << " of " << count;
                  }
                  ASSERT_TRUE(row.bands_intact());
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(RowTest, TakesEveryNthWithoutReadingPastTheLast) {
  for (int64_t stride = 1; stride <= 9; ++stride) {
    for (int64_t count = 1; count <= kLongestTail; ++count) {
      const std::vector<float> values = noise((count - 1) * stride + 1, 0, 1);
      Row row(values), phase(count);
      kernels().take_every(row.data(), stride, phase.data(), count);
      for (int64_t j = 0; j < count; ++j) ASSERT_EQ(phase.data()[j], values[static_cast<size_t>(j * stride)]) << stride;
      ASSERT_TRUE(phase.bands_intact());
    }
  }
}

TEST_P(RowTest, DealsAllPhasesWithoutReadingPastTheLast) {
  for (int64_t stride = 1; stride <= 9; ++stride) {
    for (int64_t count = 1; count <= kLongestTail; ++count) {
      const int64_t phase_row = count + 2;
      const std::vector<float> values = noise(count * stride, 0, 1);
      Row row(values), phases(phase_row * stride);
      kernels().deal_phases(row.data(), stride, phases.data(), phase_row, count);
      for (int64_t f = 0; f < stride; ++f) {
        for (int64_t j = 0; j < count; ++j) {
          ASSERT_EQ(phases.data()[f * phase_row + j], values[static_cast<size_t>(j * stride + f)])
              << stride << " " << f;
        }
        ASSERT_TRUE(std::isnan(phases.data()[f * phase_row + count])) << "written past a phase";
      }
      ASSERT_TRUE(phases.bands_intact());
    }
  }
}

TEST_P(RowTest, NormalisesWithAMeanInTwoParts) {
  for (int64_t count = 1; count <= kLongestTail; ++count) {
    const std::vector<float> z = noise(count, 1000, 1);
    Row from(z), to(count);
    const cpu::NormRow norm{.z = from.data(),
                            .out = to.data(),
                            .count = count,
                            .mean_high = 1000,
                            .mean_low = 1e-6f,
                            .scale = 3,
                            .shift = -2,
                            .normalise = true};
    kernels().norm_row(norm, CONVNORM_RELU, 0);
    for (int64_t i = 0; i < count; ++i) {
      const double want = std::max(0.0, (z[static_cast<size_t>(i)] - 1000.000001) * 3 - 2);
      ASSERT_NEAR(to.data()[i], want, 4e-7) << count;
    }
    kernels().norm_row({.z = from.data(),
                        .out = from.data(),
                        .count = count,
                        .mean_high = 1,
                        .mean_low = 1,
                        .scale = 1,
                        .shift = 1,
                        .normalise = false},
                       CONVNORM_NONE, 0);
    ASSERT_EQ(from.values(), z) << "without a norm and an op a row passes unchanged";
    ASSERT_TRUE(to.bands_intact() && from.bands_intact());
  }
}

TEST_P(RowTest, OneElementBecomesExactlyTheShift) {
  for (const float z : {0.1f, 3.3f, -1e20f}) {
    const cpu::Moments m = moments({z});
    const auto high = static_cast<float>(m.mean);
    float out = 0;
    kernels().norm_row({.z = &z,
                        .out = &out,
                        .count = 1,
                        .mean_high = high,
                        .mean_low = static_cast<float>(m.mean - high),
                        .scale = 316.2f,
                        .shift = 0.7f,
                        .normalise = true},
                       CONVNORM_NONE, 0);
    EXPECT_EQ(out, 0.7f);
  }
}

TEST_P(RowTest, CombinesRowsOfEveryCount) {
  for (int64_t count = 1; count <= kLongestTail; ++count) {
    const std::vector<float> a = noise(count, 0, 4, 1), b = noise(count, 0, 4, 2);
    Row film(a), sum(a), gate(a), other(b);
    kernels().film(film.data(), count, 1.5f, -0.25f);
    kernels().add(sum.data(), other.data(), count);
    kernels().glu(gate.data(), other.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      const double x = a[static_cast<size_t>(i)], y = b[static_cast<size_t>(i)];
      ASSERT_NEAR(film.data()[i], x * 1.5 - 0.25, 1e-6);
      ASSERT_EQ(sum.data()[i], a[static_cast<size_t>(i)] + b[static_cast<size_t>(i)]);
      ASSERT_NEAR(gate.data()[i], x / (1 + std::exp(-y)), 2e-6);
    }
    ASSERT_TRUE(film.bands_intact() && sum.bands_intact() && gate.bands_intact());
  }
}

TEST_P(RowTest, NormalisesPastTheCachesToTheSameBits) {
  for (size_t misalignment = 0; misalignment < 64; misalignment += 4) {
    for (const int64_t count : {1, 3, 15, 16, 17, 67, 200}) {
      Row from(noise(count, 2, 1));
      Guarded kept(static_cast<size_t>(count) * 4), streamed(kept.size(), misalignment);
      cpu::NormRow norm{.z = from.data(),
                        .out = reinterpret_cast<float*>(kept.data()),
                        .count = count,
                        .mean_high = 2,
                        .mean_low = 1e-8f,
                        .scale = 1.5f,
                        .shift = 0.25f,
                        .normalise = true};
      kernels().norm_row(norm, CONVNORM_GELU, 0);
      norm.out = reinterpret_cast<float*>(streamed.data());
      norm.stream = true;
      kernels().norm_row(norm, CONVNORM_GELU, 0);
      ASSERT_EQ(std::memcmp(streamed.data(), kept.data(), kept.size()), 0) << misalignment << " " << count;
      ASSERT_TRUE(streamed.bands_intact());
    }
  }
}

TEST_P(RowTest, StoresPastTheCachesFromAnyAddress) {
  for (size_t misalignment = 0; misalignment < 64; misalignment += 4) {
    for (const int64_t count : {1, 3, 15, 16, 17, 67, 200}) {
      const std::vector<float> values = noise(count, 0, 1);
      Guarded to(values.size() * 4, misalignment);
      kernels().from_float(values.data(), to.data(), CONVNORM_F32, count, true);
      ASSERT_EQ(std::memcmp(to.data(), values.data(), to.size()), 0) << misalignment << " " << count;
      ASSERT_TRUE(to.bands_intact());
    }
  }
}

CONVNORM_INSTANTIATE_KERNEL_TEST(RowTest);

}  // namespace
}  // namespace convnorm::test
