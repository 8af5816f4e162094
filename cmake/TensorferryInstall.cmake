# Installs the library with its headers, the gRPC side and the Prometheus side (components grpc and prometheus of
# find_package), the command, and what CMake and pkg-config need to find them wherever the prefix is moved to.
# Components: `library` is what programs run with, `development` what they are built with, `tools` the command,
# `ucx` the module that alone needs UCX.
# A static and a shared build may be installed into one prefix.
include(CMakePackageConfigHelpers)

set(tensorferry_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tensorferry)
set(tensorferry_kind static)
if(BUILD_SHARED_LIBS)
  set(tensorferry_kind shared)
endif()

# tensorferry_install_library(EXPORT TARGET...): EXPORT is a part of a file's name, such as GrpcTargets.
function(tensorferry_install_library export)
  set_target_properties(${ARGN} PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${ARGN} EXPORT tensorferry${export}
          LIBRARY COMPONENT library NAMELINK_COMPONENT development
          ARCHIVE COMPONENT development)
  install(EXPORT tensorferry${export} NAMESPACE tensorferry::
          FILE ${tensorferry_kind}${export}.cmake
          DESTINATION ${tensorferry_cmake_dir} COMPONENT development)
endfunction()

tensorferry_install_library(Targets tensorferry)
install(DIRECTORY tensorferry/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tensorferry
        COMPONENT development FILES_MATCHING PATTERN "*.h"
        PATTERN "*_testing.h" EXCLUDE PATTERN "testdata" EXCLUDE PATTERN "grpc" EXCLUDE
        PATTERN "prometheus" EXCLUDE PATTERN "module" EXCLUDE)

file(RELATIVE_PATH libraries_from_agent
     ${CMAKE_INSTALL_FULL_LIBEXECDIR}/tensorferry ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(tensorferry_nixl_agent PROPERTIES
  INSTALL_RPATH "$ORIGIN/${libraries_from_agent}")
install(TARGETS tensorferry_nixl_agent DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/tensorferry
        COMPONENT tools)
if(TARGET tensorferry_ucx)
  install(TARGETS tensorferry_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tensorferry COMPONENT ucx)
endif()

if(TENSORFERRY_BUILD_TOOLS)
  set(grpc_libraries tensorferry_grpc)
  if(NOT BUILD_SHARED_LIBS)
    list(APPEND grpc_libraries tensorferry_transport_proto)
  endif()
  tensorferry_install_library(GrpcTargets ${grpc_libraries})
  install(DIRECTORY tensorferry/grpc/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tensorferry/grpc
          COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*_testing.h" EXCLUDE
          PATTERN "capabilities_proto.h" EXCLUDE)

  tensorferry_install_library(PrometheusTargets tensorferry_prometheus)
  install(DIRECTORY tensorferry/prometheus/
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tensorferry/prometheus
          COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*_testing.h" EXCLUDE)

  file(RELATIVE_PATH libraries_from_command
       ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(tensorferry_command PROPERTIES
    INSTALL_RPATH "$ORIGIN/${libraries_from_command}")
  install(TARGETS tensorferry_command COMPONENT tools)
  # The command knows its words best.
  install(CODE "set(completions \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/bash-completion/completions\")
file(MAKE_DIRECTORY \"\${completions}\")
execute_process(COMMAND \"$<TARGET_FILE:tensorferry_command>\" completion
                OUTPUT_FILE \"\${completions}/tensorferry\" COMMAND_ERROR_IS_FATAL ANY)"
          COMPONENT tools)

  set(tensorferry_environment_file ${CMAKE_INSTALL_FULL_SYSCONFDIR}/default/tensorferry-worker)
  configure_file(deploy/systemd/tensorferry-worker.service.in
                 ${PROJECT_BINARY_DIR}/tensorferry-worker.service @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/tensorferry-worker.service
          DESTINATION lib/systemd/system COMPONENT tools)
  # Outside of any prefix that it may be moved to: only where it is asked for, as the packages do.
  install(FILES deploy/systemd/tensorferry-worker.default
          DESTINATION ${CMAKE_INSTALL_FULL_SYSCONFDIR}/default RENAME tensorferry-worker
          COMPONENT tools EXCLUDE_FROM_ALL)
  install(FILES deploy/prometheus/alerts.yml deploy/grafana/dashboard.json
          DESTINATION ${CMAKE_INSTALL_DATADIR}/tensorferry COMPONENT tools)
  install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/tensorferry COMPONENT tools
          FILES_MATCHING PATTERN "*.md")
endif()

configure_package_config_file(
  cmake/tensorferryConfig.cmake.in ${PROJECT_BINARY_DIR}/tensorferryConfig.cmake
  INSTALL_DESTINATION ${tensorferry_cmake_dir})
# Below 1.0 a new minor version may change the interface.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/tensorferryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tensorferryConfig.cmake
              ${PROJECT_BINARY_DIR}/tensorferryConfigVersion.cmake
        DESTINATION ${tensorferry_cmake_dir} COMPONENT development)

file(RELATIVE_PATH tensorferry_pc_prefix
     ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" tensorferry_pc_prefix ${tensorferry_pc_prefix})
configure_file(cmake/tensorferry.pc.in ${PROJECT_BINARY_DIR}/tensorferry.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tensorferry.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

if(BUILD_SHARED_LIBS AND TENSORFERRY_BUILD_TOOLS)
  include(cmake/TensorferryPackages.cmake)
endif()
