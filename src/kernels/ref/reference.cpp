#include "kernels/ref/reference.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "descriptor/elements.hpp"
#include "epilogue/scalar_math.hpp"

namespace convnorm::ref {

namespace {

constexpr size_t kMostScratchBytes = size_t{256} << 20;  // beyond it, fewer workers run at once

// The channels of a sample that are computed together: whole norm groups, and with a glu both partners of every pair.
// Row r of a block's scratch is one channel; a group is always `o_per_norm_group` rows in succession.
struct Blocks {
  Blocks(const Problem& p, const Sizes& sizes) : channels(p.o), paired(has_post(p, CONVNORM_GLU)) {
    const int64_t units = has_norm(p) ? p.groups : p.o;
    if (!paired) {
      count = units;
    } else {
      count = units % 2 == 0 ? units / 2 : 1;  // an odd number of groups has one that lies across the middle
    }
    rows = p.o / count;
    group_rows = sizes.o_per_norm_group;
  }

  // First half of the rows: channels from the first half of C_out; second half: their glu partners.
  int64_t channel(int64_t block, int64_t row) const {
    if (!paired) return block * rows + row;
    const int64_t half = rows / 2;
    return row < half ? block * half + row : channels / 2 + block * half + (row - half);
  }

  int64_t channels;
  bool paired;
  int64_t count;
  int64_t rows;
  int64_t group_rows;
};

// Where position i of the padded input comes from; -1 for a zero.
int64_t source(convnorm_padding pad, int64_t i, int64_t length) {
  if (i >= 0 && i < length) return i;
  switch (pad) {
    case CONVNORM_REFLECT:
      return i < 0 ? -i : 2 * (length - 1) - i;
    case CONVNORM_REPLICATE:
      return i < 0 ? 0 : length - 1;
    default:
      return -1;
  }
}

// One call: a problem, its tensors, and the arithmetic on one block of one sample. Element is the type of x and y.
template <class Element>
class Call {
 public:
  Call(const Problem& problem, const Sizes& sizes, const Blocks& blocks, const convnorm_tensors& tensors,
       const double* weight)
      : p_(problem), sizes_(sizes), blocks_(blocks), t_(tensors), weight_(weight) {}

  void compute(int64_t sample, int64_t block, double* scratch) const {
    const int64_t length = p_.lengths ? t_.lengths[sample] : p_.l;
    const int64_t l_out = output_length(p_, length);
    const std::span<double> z(scratch, blocks_.rows * l_out);
    convolve(sample, block, length, l_out, z);
    if (has_norm(p_)) {
      const int64_t group_size = blocks_.group_rows * l_out;
      for (int64_t first = 0; first < blocks_.rows && group_size > 0; first += blocks_.group_rows) {
        normalise(block, first, l_out, z.subspan(first * l_out, group_size));
      }
    }
    int64_t rows = blocks_.rows;
    for (int i = 0; i < p_.post_count; ++i) rows = apply_post(p_.post[i], sample, block, rows, l_out, z);
    store(sample, block, rows, l_out, z);
  }

 private:
  double x(int64_t sample, int64_t channel, int64_t i) const {
    if (i < 0) return 0;
    const int64_t index =
        p_.layout == CONVNORM_NCL ? (sample * p_.c + channel) * p_.l + i : (sample * p_.l + i) * p_.c + channel;
    return static_cast<double>(static_cast<const Element*>(t_.x)[index]);
  }

  int64_t y_index(int64_t sample, int64_t channel, int64_t l) const {
    return p_.layout == CONVNORM_NCL ? (sample * sizes_.c_y + channel) * sizes_.l_out + l
                                     : (sample * sizes_.l_out + l) * sizes_.c_y + channel;
  }

  double parameter(const void* tensor, int64_t index) const { return load_element(tensor, t_.param_dtype, index); }

  void convolve(int64_t sample, int64_t block, int64_t length, int64_t l_out, std::span<double> z) const {
    const int64_t taps = sizes_.c_per_conv_group * p_.k;
    for (int64_t row = 0; row < blocks_.rows; ++row) {
      const int64_t o = blocks_.channel(block, row);
      const int64_t first_input = o / sizes_.o_per_conv_group * sizes_.c_per_conv_group;
      const double* w = weight_ + o * taps;
      const double bias = p_.bias ? parameter(t_.bias, o) : 0;
      const double slope = p_.pre.op == CONVNORM_PRELU ? parameter(t_.pre_slope, t_.pre_slope_per_channel ? o : 0) : 0;
      for (int64_t l = 0; l < l_out; ++l) {
        double sum = 0;
        for (int64_t c = 0; c < sizes_.c_per_conv_group; ++c) {
          for (int64_t k = 0; k < p_.k; ++k) {
            const int64_t i = source(p_.pad, l * p_.stride + k * p_.dilation - p_.pad_left, length);
            sum += w[c * p_.k + k] * x(sample, first_input + c, i);
          }
        }
        z[row * l_out + l] = epilogue::apply(p_.pre.op, sum + bias, slope);
      }
    }
  }

  // Mean first, then the centred sum of squares.
  void normalise(int64_t block, int64_t first_row, int64_t l_out, std::span<double> group) const {
    const auto count = static_cast<double>(group.size());
    double sum = 0;
    for (const double value : group) sum += value;
    const double mean = sum / count;
    double squares = 0;
    for (const double value : group) squares += (value - mean) * (value - mean);
    const double rstd = 1 / std::sqrt(squares / count + p_.eps);
    for (int64_t row = 0; row < blocks_.group_rows; ++row) {
      const int64_t channel = blocks_.channel(block, first_row + row);
      const double gamma = has_affine(p_) ? parameter(t_.gamma, channel) : 1;
      const double beta = has_affine(p_) ? parameter(t_.beta, channel) : 0;
      for (double& value : group.subspan(row * l_out, l_out)) value = (value - mean) * (rstd * gamma) + beta;
    }
  }

  // Returns the number of rows that remain. Before a glu a row is a channel of C_out, after it one of C_out/2; in both
  // cases Blocks numbers the first half alike.
  int64_t apply_post(const convnorm_stage& stage, int64_t sample, int64_t block, int64_t rows, int64_t l_out,
                     std::span<double> z) const {
    const bool halved = rows < blocks_.rows;
    const int64_t channels = halved ? p_.o / 2 : p_.o;
    if (stage.op == CONVNORM_GLU) {
      const size_t half = z.size() / 2;
      for (size_t i = 0; i < half; ++i) z[i] *= epilogue::ScalarMath::sigmoid(z[half + i]);
      return rows / 2;
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t channel = blocks_.channel(block, row);
      const std::span<double> values = z.subspan(row * l_out, l_out);
      if (stage.op == CONVNORM_FILM) {
        const double scale = parameter(t_.film_scale, sample * channels + channel);
        const double shift = parameter(t_.film_shift, sample * channels + channel);
        for (double& value : values) value = value * scale + shift;
      } else if (stage.op == CONVNORM_ADD) {
        const auto* residual = static_cast<const Element*>(t_.residual);
        for (int64_t l = 0; l < l_out; ++l) values[l] += static_cast<double>(residual[y_index(sample, channel, l)]);
      } else {
        const bool slope = stage.op == CONVNORM_PRELU;
        const double argument = slope ? parameter(t_.post_slope, t_.post_slope_per_channel ? channel : 0) : stage.param;
        for (double& value : values) value = epilogue::apply(stage.op, value, argument);
      }
    }
    return rows;
  }

  void store(int64_t sample, int64_t block, int64_t rows, int64_t l_out, std::span<const double> z) const {
    auto* y = static_cast<Element*>(t_.y);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t channel = blocks_.channel(block, row);
      for (int64_t l = 0; l < sizes_.l_out; ++l) {
        y[y_index(sample, channel, l)] = l < l_out ? Element(z[row * l_out + l]) : Element(0.0);
      }
    }
  }

  const Problem& p_;
  const Sizes& sizes_;
  const Blocks& blocks_;
  const convnorm_tensors& t_;
  const double* weight_;
};

class Reference final : public Executable {
 public:
  explicit Reference(const PlanRequest& request)
      : problem_(request.problem), sizes_(request.sizes), blocks_(problem_, sizes_) {
    const size_t scratch_bytes = scratch_elements() * sizeof(double);
    const int64_t affordable = std::max<int64_t>(1, static_cast<int64_t>(kMostScratchBytes / scratch_bytes));
    workers_ = static_cast<int>(std::max<int64_t>(1, std::min({int64_t{request.threads}, tasks(), affordable})));
  }

  size_t packed_bytes() const override { return static_cast<size_t>(sizes_.w_elements) * sizeof(double); }

  void pack(const void* weight, void* packed, const Launch&) const override {
    auto* w = static_cast<double*>(packed);
    for (int64_t i = 0; i < sizes_.w_elements; ++i) w[i] = load_element(weight, problem_.dtype, i);
  }

  size_t workspace_bytes() const override {
    return scratch_elements() * sizeof(double) * static_cast<size_t>(workers_);
  }

  void run(const convnorm_tensors& tensors, const void* packed, void* workspace, const Launch& launch) const override {
    with_element_type(problem_.dtype, [&](auto element) {
      const Call<decltype(element)> call(problem_, sizes_, blocks_, tensors, static_cast<const double*>(packed));
      launch.parallel(workers_, [&](int worker) {
        double* scratch = static_cast<double*>(workspace) + static_cast<size_t>(worker) * scratch_elements();
        for (int64_t task = worker; task < tasks(); task += workers_) {
          call.compute(task / blocks_.count, task % blocks_.count, scratch);
        }
      });
    });
  }

  std::vector<std::pair<std::string, std::string>> config() const override {
    return {{"workers", std::to_string(workers_)},
            {"blocks_per_sample", std::to_string(blocks_.count)},
            {"channels_per_block", std::to_string(blocks_.rows)}};
  }

  Accounting accounting() const override {
    const double least = compulsory_bytes(problem_, sizes_);
    const auto scratch = static_cast<double>(workspace_bytes());
    return {.flops = sizes_.flops,
            .min_bytes = least,
            .moved_bytes = least + static_cast<double>(packed_bytes()),
            .z_bytes = scratch,
            .workspace_bytes = scratch};
  }

 private:
  int64_t tasks() const { return problem_.n * blocks_.count; }
  size_t scratch_elements() const { return static_cast<size_t>(blocks_.rows) * static_cast<size_t>(sizes_.l_out); }

  Problem problem_;
  Sizes sizes_;
  Blocks blocks_;
  int workers_;
};

}  // namespace

Answer consider_reference(const PlanRequest& request) { return std::make_unique<Reference>(request); }

}  // namespace convnorm::ref
