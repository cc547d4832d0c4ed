#include "bindings/info.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kernels/cpu/targets.hpp"
#include "plan/default_pool.hpp"
#include "plan/plan.hpp"

namespace convnorm {

namespace {

constexpr const char* kCuda = "not in this build: this version has no CUDA backend";

}  // namespace

const char* version() { return CONVNORM_VERSION; }

std::string info(convnorm_format format) {
  std::vector<std::string> paths;
  for (const Implementation& each : registry(CONVNORM_CPU)) paths.emplace_back(each.name);
  const std::vector<const char*>& compiled = cpu::compiled_targets();
  const std::vector<const char*>& available = cpu::available_targets();
  if (format == CONVNORM_JSON) {
    nlohmann::ordered_json document;
    document["version"] = version();
    document["targets_compiled"] = compiled;
    document["targets_available"] = available;
    document["threads"] = default_threads();
    document["paths"] = paths;
    document["cuda"] = kCuda;
    return document.dump(2);
  }
  return fmt::format(
      "version            {}\ntargets compiled   {}\ntargets available  {}\nthreads            {}\n"
      "paths              {}\ncuda               {}\n",
      version(), fmt::join(compiled, ", "), fmt::join(available, ", "), default_threads(), fmt::join(paths, ", "),
      kCuda);
}

}  // namespace convnorm
