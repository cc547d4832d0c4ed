#include "bindings/info.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kernels/cpu/targets.hpp"
#include "kernels/cuda/backend.hpp"
#include "plan/default_pool.hpp"
#include "plan/plan.hpp"

namespace convnorm {

namespace {

std::vector<std::string> path_names(convnorm_device device) {
  std::vector<std::string> names;
  for (const Implementation& each : registry(device)) names.emplace_back(each.name);
  return names;
}

}  // namespace

const char* version() { return CONVNORM_VERSION; }

std::string info(convnorm_format format) {
  const std::vector<std::string> paths = path_names(CONVNORM_CPU), cuda_paths = path_names(CONVNORM_CUDA);
  const cuda::Presence cuda = cuda::presence();
  const std::vector<const char*>& compiled = cpu::compiled_targets();
  const std::vector<const char*>& available = cpu::available_targets();
  if (format == CONVNORM_JSON) {
    nlohmann::ordered_json document;
    document["version"] = version();
    document["targets_compiled"] = compiled;
    document["targets_available"] = available;
    document["threads"] = default_threads();
    document["paths"] = paths;
    document["cuda"] = cuda.text;
    document["cuda_usable"] = cuda.usable;
    if (cuda.compiled) {
      document["cuda_architectures"] = cuda.architectures;
      document["cuda_version"] = cuda.toolkit;
      document["cuda_driver_version"] = cuda.driver;
      if (cuda.driver.empty()) document["cuda_driver_version"] = nullptr;
      document["cuda_paths"] = cuda_paths;
    }
    return document.dump(2);
  }
  std::string text = fmt::format(
      "version            {}\ntargets compiled   {}\ntargets available  {}\nthreads            {}\n"
      "paths              {}\ncuda               {}\n",
      version(), fmt::join(compiled, ", "), fmt::join(available, ", "), default_threads(), fmt::join(paths, ", "),
      cuda.text);
  if (cuda.compiled) {
    text += fmt::format("cuda compiled      {}, by CUDA {}\ncuda driver        {}\ncuda paths         {}\n",
                        cuda.architectures, cuda.toolkit, cuda.driver.empty() ? "none" : "CUDA " + cuda.driver,
                        fmt::join(cuda_paths, ", "));
  }
  return text;
}

}  // namespace convnorm
