#include "cli/device_operands.hpp"

#include <vector>

namespace convnorm::cli {

DeviceOperands::DeviceOperands(const Operands& operands) : host_view_(operands.view()) {
  for (const auto& [name, tensor] : operands.tensors) buffers_.emplace(name, tensor.data.size());
  load(operands);
}

void DeviceOperands::load(const Operands& operands) {
  for (auto& [name, buffer] : buffers_) buffer.upload(operands.tensors.at(name).data.data());
}

convnorm_tensors DeviceOperands::view() const {
  const auto data = [this](const char* name) -> const void* {
    const auto found = buffers_.find(name);
    return found == buffers_.end() ? nullptr : found->second.data();
  };
  convnorm_tensors t = host_view_;
  point_to_inputs(t, data);
  return t;
}

std::string DeviceOperands::changed(const Operands& operands) const {
  for (const auto& [name, buffer] : buffers_) {
    std::vector<std::byte> now(buffer.size());
    buffer.download(now.data());
    if (now != operands.tensors.at(name).data) return "changed its input " + name;
    if (!buffer.guards_intact()) return "wrote outside of its input " + name;
  }
  return "";
}

size_t output_bytes(const convnorm_problem& problem) {
  return static_cast<size_t>(byte_count(element_type(problem.dtype), output_shape(problem)));
}

}  // namespace convnorm::cli
