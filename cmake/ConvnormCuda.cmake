# This version computes on CPUs only; the option exists so that scripts that set it get a clear answer.
if(CONVNORM_CUDA STREQUAL "ON")
  message(FATAL_ERROR "CONVNORM_CUDA=ON: this version of convnorm has no CUDA backend; configure with AUTO or OFF")
elseif(NOT CONVNORM_CUDA MATCHES "^(AUTO|OFF)$")
  message(FATAL_ERROR "CONVNORM_CUDA=${CONVNORM_CUDA} is not known; use AUTO, ON or OFF")
endif()
message(STATUS "convnorm: building for CPUs only, this version has no CUDA backend")
