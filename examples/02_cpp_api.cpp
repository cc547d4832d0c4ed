// The same operator from C++: a block of a diffusion policy, executed twice with one plan and one packed weight.
#include <cmath>
#include <convnorm/convnorm.hpp>
#include <cstdio>
#include <vector>

int main() try {
  const convnorm::Problem problem("n=1,c=8,l=16,o=16,k=5,p=2,g=4,bias=1,post=mish");
  const convnorm::Plan plan(problem);
  std::printf("%s", plan.explain().c_str());

  std::vector<float> w(problem.weight_size());
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::sin(0.37f * static_cast<float>(i));
  const convnorm::PackedWeight weight = plan.pack<float>(w);
  convnorm::AlignedBuffer workspace(plan.workspace_size());

  const std::vector<float> bias(16, 0.5f), gamma(16, 1.0f), beta(16, 0.0f);
  std::vector<float> x(problem.x_size()), y(problem.y_size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::cos(0.21f * static_cast<float>(i));
  plan.execute<float>(weight, {.x = x, .bias = bias, .gamma = gamma, .beta = beta, .y = y}, workspace);
  const std::vector<float> first = y;

  // The norm takes out any factor of x (but for eps), so doubling x and the bias changes next to nothing.
  const std::vector<float> twice_bias(16, 1.0f);
  for (float& value : x) value *= 2;
  plan.execute<float>(weight, {.x = x, .bias = twice_bias, .gamma = gamma, .beta = beta, .y = y}, workspace);
  float difference = 0;
  for (std::size_t i = 0; i < y.size(); ++i) difference = std::max(difference, std::fabs(y[i] - first[i]));
  std::printf("y[0] = %.6f, largest difference after doubling x: %.1e\n", static_cast<double>(y[0]),
              static_cast<double>(difference));

  // A failure names the value and the way out.
  try {
    convnorm::Problem("n=1,c=8,l=16,o=16,k=5,p=2,g=5");
  } catch (const convnorm::Error& error) {
    std::printf("as it should: %s\n", error.what());
  }
  return difference < 1e-3f ? 0 : 1;
} catch (const convnorm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
