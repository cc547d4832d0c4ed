# Headers, library, CMake package and pkg-config file.
include(CMakePackageConfigHelpers)

install(TARGETS convnorm EXPORT convnormTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/convnorm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/convnorm)
install(EXPORT convnormTargets NAMESPACE convnorm:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/convnormConfig.cmake.in
  ${PROJECT_BINARY_DIR}/convnormConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/convnormConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/convnormConfig.cmake ${PROJECT_BINARY_DIR}/convnormConfigVersion.cmake
  DESTINATION ${package_dir})

# A prefix that is relative to the file itself survives moving the installed tree.
file(RELATIVE_PATH pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/convnorm.pc.in ${PROJECT_BINARY_DIR}/convnorm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/convnorm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
