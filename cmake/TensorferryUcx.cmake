# engine/ucx: libtensorferry_ucx.so, which the library opens at run time, so that nothing else links UCX. It shows
# one C symbol and has its own copy of the little that it needs of the library, which a shared one hides.
pkg_check_modules(ucx IMPORTED_TARGET ucx)
if(TENSORFERRY_UCX STREQUAL "OFF")
  return()
elseif(NOT ucx_FOUND)
  if(TENSORFERRY_UCX STREQUAL "ON")
    message(FATAL_ERROR "TENSORFERRY_UCX=ON and no UCX: install libucx-dev, or set TENSORFERRY_UCX=AUTO")
  endif()
  message(STATUS "No UCX: engine/ucx is not built (install libucx-dev)")
  return()
endif()

file(GLOB tensorferry_ucx_sources CONFIGURE_DEPENDS
     tensorferry/base/*.cc tensorferry/wire/*.cc tensorferry/policy/*.cc tensorferry/metrics/*.cc
     tensorferry/engine/ucx/module/*.cc)
list(FILTER tensorferry_ucx_sources EXCLUDE REGEX "_(test|fuzz|benchmark|testing|main)\\.cc$")
add_library(tensorferry_ucx MODULE ${tensorferry_ucx_sources}
  tensorferry/engine/net_way.cc tensorferry/engine/ucx/ucx_abi.cc)
target_compile_features(tensorferry_ucx PRIVATE cxx_std_20)
target_include_directories(tensorferry_ucx PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(tensorferry_ucx PRIVATE
  absl::status absl::statusor absl::strings absl::cord absl::span absl::btree absl::flat_hash_map
  absl::inlined_vector Threads::Threads PkgConfig::xxhash PkgConfig::ucx)
tensorferry_library(tensorferry_ucx)
set(tensorferry_ucx_map ${PROJECT_SOURCE_DIR}/tensorferry/engine/ucx/module/ucx_module.map)
target_link_options(tensorferry_ucx PRIVATE -Wl,--version-script=${tensorferry_ucx_map})
# No number: it belongs to one build, and says so itself.
set_target_properties(tensorferry_ucx PROPERTIES
  VERSION "" SOVERSION "" NO_SONAME ON LINK_DEPENDS ${tensorferry_ucx_map}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/tensorferry)
