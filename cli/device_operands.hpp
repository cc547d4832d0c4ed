// The inputs of a problem in device memory, each between guard bands.
#pragma once

#include <map>
#include <string>

#include "cli/device.hpp"
#include "cli/tensors.hpp"

namespace convnorm::cli {

class DeviceOperands {
 public:
  explicit DeviceOperands(const Operands& operands);

  // Other contents for the same problem.
  void load(const Operands& operands);
  const DeviceBuffer& buffer(const std::string& name) const { return buffers_.at(name); }
  // As Operands::view(), with device pointers.
  convnorm_tensors view() const;
  // "" or which tensor no longer is what was loaded.
  std::string changed(const Operands& operands) const;

 private:
  convnorm_tensors host_view_;
  std::map<std::string, DeviceBuffer> buffers_;
};

size_t output_bytes(const convnorm_problem& problem);

}  // namespace convnorm::cli
