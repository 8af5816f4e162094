# One test program per room, made of the room's *_test.cc. *_testing.cc are helpers for tests.
find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)
include(GoogleTest)

# A test that takes longer (seconds) prints the stacks of all its processes and fails.
set(TENSORFERRY_TEST_TIMEOUT 60)
if(TENSORFERRY_SANITIZE)
  set(TENSORFERRY_TEST_TIMEOUT 240)
endif()

# tensorferry_discover_tests(PROGRAM ROOM): gives ctest the tests of a program, which run in the top folder.
function(tensorferry_discover_tests program room)
  set_target_properties(${program} PROPERTIES CROSSCOMPILING_EMULATOR
    "${PROJECT_SOURCE_DIR}/ci/with_stacks.py;--timeout;${TENSORFERRY_TEST_TIMEOUT}")
  # A fixed seed: a property that fails does so in every run.
  gtest_discover_tests(${program} TEST_PREFIX "${room}." DISCOVERY_TIMEOUT 60
                       WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                       PROPERTIES ENVIRONMENT "RC_PARAMS=seed=20240601")
endfunction()

# tensorferry_test(ROOM SOURCE...): the program ROOM_test.
function(tensorferry_test room)
  add_executable(${room}_test ${ARGN})
  target_link_libraries(${room}_test PRIVATE tensorferry_testing GTest::gtest_main)
  tensorferry_options(${room}_test)
  tensorferry_discover_tests(${room}_test ${room})
endfunction()

file(GLOB_RECURSE tensorferry_testing CONFIGURE_DEPENDS tensorferry/*_testing.cc)
list(FILTER tensorferry_testing EXCLUDE REGEX "tensorferry/grpc/")
add_library(tensorferry_testing STATIC ${tensorferry_testing})
target_link_libraries(tensorferry_testing
  PUBLIC tensorferry GTest::gmock rapidcheck PkgConfig::xxhash absl::random_random)
# Relative to the folder that tests run in: absolute, it would keep ccache from serving another clone.
target_compile_definitions(tensorferry_testing PUBLIC TENSORFERRY_SOURCE_DIR=".")
tensorferry_options(tensorferry_testing)

file(GLOB_RECURSE tensorferry_tests CONFIGURE_DEPENDS tensorferry/*_test.cc)
foreach(source IN LISTS tensorferry_tests)
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/tensorferry ${source})
  string(REGEX MATCH "^[^/]+" room ${path})
  list(APPEND rooms ${room})
  list(APPEND sources_${room} ${source})
endforeach()
list(REMOVE_DUPLICATES rooms)
foreach(room IN LISTS rooms)
  if(room STREQUAL "prometheus")
    if(TENSORFERRY_BUILD_TOOLS)
      tensorferry_test(prometheus ${sources_prometheus})
      target_link_libraries(prometheus_test PRIVATE tensorferry_prometheus)
    endif()
    continue()
  endif()
  # Tests of these use SMG's generated messages.
  set(needs_messages FALSE)
  if(room MATCHES "^(gateway|worker|grpc)$")
    set(needs_messages TRUE)
  endif()
  if(needs_messages AND NOT TENSORFERRY_BUILD_TOOLS)
    continue()
  endif()
  tensorferry_test(${room} ${sources_${room}})
  if(needs_messages)
    target_link_libraries(${room}_test PRIVATE tensorferry_grpc tensorferry_transport_proto
                          smg_protos)
  endif()
endforeach()

# A user's module that is linked to the system's UCX, which NIXL must get along with. Skipped loudly where there is none.
if(ucx_FOUND)
  add_library(tensorferry_ucx_module MODULE tests/peers/ucx_module.cc)
  set_target_properties(tensorferry_ucx_module PROPERTIES PREFIX "")
  target_link_libraries(tensorferry_ucx_module PRIVATE PkgConfig::ucx)
  tensorferry_options(tensorferry_ucx_module)
  add_dependencies(engine_test tensorferry_ucx_module)
endif()
if(TARGET tensorferry_ucx)
  add_dependencies(engine_test tensorferry_ucx)
endif()
# One that must not be called.
add_library(tensorferry_ucx_of_another_tree MODULE tests/peers/ucx_of_another_tree.cc)
set_target_properties(tensorferry_ucx_of_another_tree PROPERTIES PREFIX "")
target_link_libraries(tensorferry_ucx_of_another_tree PRIVATE tensorferry)
tensorferry_options(tensorferry_ucx_of_another_tree)
add_dependencies(engine_test tensorferry_ucx_of_another_tree)

# The command's parts make one more room.
if(TENSORFERRY_BUILD_TOOLS)
  file(GLOB_RECURSE tools_tests CONFIGURE_DEPENDS tools/*_test.cc tools/*_testing.cc)
  tensorferry_test(tools ${tools_tests})
  target_link_libraries(tools_test PRIVATE tensorferry_tools)
endif()

# A gateway for tests/load.
if(TENSORFERRY_BUILD_TOOLS)
  add_executable(tensorferry_load_gateway tests/load/gateway.cc)
  target_link_libraries(tensorferry_load_gateway PRIVATE tensorferry_tools)
  tensorferry_options(tensorferry_load_gateway)
endif()
