# How every target of this build is compiled.
get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT CMAKE_BUILD_TYPE AND NOT multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The static library and the shared one are made of the same objects, so both are compiled hidden.
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# -Wpsabi only tells that gcc's passing of vectors changed in version 4.6; a designated initialiser leaves out on purpose
# what stands at its default.
set(warnings -Wall -Wextra -Wno-psabi -Wno-missing-field-initializers)
list(JOIN warnings "," warnings_joined)
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${warnings}>" $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${warnings_joined}>)
