# Installs the library with its headers, the gRPC side and the Prometheus side (components grpc and prometheus of
# find_package) and the command, and what CMake and pkg-config need to find them wherever the prefix is moved to.
include(CMakePackageConfigHelpers)

set(tensorferry_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tensorferry)

install(TARGETS tensorferry EXPORT tensorferryTargets)
file(RELATIVE_PATH libraries_from_agent
     ${CMAKE_INSTALL_FULL_LIBEXECDIR}/tensorferry ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(tensorferry_nixl_agent PROPERTIES
  INSTALL_RPATH "$ORIGIN/${libraries_from_agent}")
install(TARGETS tensorferry_nixl_agent DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/tensorferry)
if(TARGET tensorferry_ucx)
  install(TARGETS tensorferry_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tensorferry)
endif()
install(EXPORT tensorferryTargets NAMESPACE tensorferry:: DESTINATION ${tensorferry_cmake_dir})
install(DIRECTORY tensorferry/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tensorferry
        FILES_MATCHING PATTERN "*.h"
        PATTERN "*_testing.h" EXCLUDE PATTERN "testdata" EXCLUDE PATTERN "grpc" EXCLUDE
        PATTERN "prometheus" EXCLUDE PATTERN "module" EXCLUDE)

if(TENSORFERRY_BUILD_TOOLS)
  set_target_properties(tensorferry_grpc PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS tensorferry_grpc EXPORT tensorferryGrpcTargets)
  if(NOT BUILD_SHARED_LIBS)
    install(TARGETS tensorferry_transport_proto EXPORT tensorferryGrpcTargets)
  endif()
  install(EXPORT tensorferryGrpcTargets NAMESPACE tensorferry::
          DESTINATION ${tensorferry_cmake_dir})
  install(DIRECTORY tensorferry/grpc/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tensorferry/grpc
          FILES_MATCHING PATTERN "*.h" PATTERN "*_testing.h" EXCLUDE
          PATTERN "capabilities_proto.h" EXCLUDE)

  set_target_properties(tensorferry_prometheus PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS tensorferry_prometheus EXPORT tensorferryPrometheusTargets)
  install(EXPORT tensorferryPrometheusTargets NAMESPACE tensorferry::
          DESTINATION ${tensorferry_cmake_dir})
  install(DIRECTORY tensorferry/prometheus/
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tensorferry/prometheus
          FILES_MATCHING PATTERN "*.h" PATTERN "*_testing.h" EXCLUDE)

  file(RELATIVE_PATH libraries_from_command
       ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(tensorferry_command PROPERTIES
    INSTALL_RPATH "$ORIGIN/${libraries_from_command}")
  install(TARGETS tensorferry_command)
endif()

get_target_property(tensorferry_type tensorferry TYPE)
configure_package_config_file(
  cmake/tensorferryConfig.cmake.in ${PROJECT_BINARY_DIR}/tensorferryConfig.cmake
  INSTALL_DESTINATION ${tensorferry_cmake_dir})
# Below 1.0 a new minor version may change the interface.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/tensorferryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tensorferryConfig.cmake
              ${PROJECT_BINARY_DIR}/tensorferryConfigVersion.cmake
        DESTINATION ${tensorferry_cmake_dir})

file(RELATIVE_PATH tensorferry_pc_prefix
     ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" tensorferry_pc_prefix ${tensorferry_pc_prefix})
configure_file(cmake/tensorferry.pc.in ${PROJECT_BINARY_DIR}/tensorferry.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tensorferry.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
