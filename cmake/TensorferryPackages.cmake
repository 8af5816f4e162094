# Debian packages by cpack, of a shared build with the prefix /usr: libtensorferry0.1, libtensorferry-dev, tensorferry
# and, where there is UCX, tensorferry-ucx, by the components that are installed. `./dev packages` makes them.
# TENSORFERRY_STATIC_BUILD is the folder of a static build, whose libraries libtensorferry-dev holds too.
set(TENSORFERRY_STATIC_BUILD "" CACHE PATH "A static build, for libtensorferry-dev")

set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(library libtensorferry${soversion})
set(own_library "${library} (= ${PROJECT_VERSION})")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tensorferry)
set(CPACK_PACKAGE_CONTACT "Tensorferry's maintainers <maintainers@tensorferry.invalid>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_COMPONENTS_ALL library development tools)
if(TARGET tensorferry_ucx)
  list(APPEND CPACK_COMPONENTS_ALL ucx)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# For packages of others that are built against ours.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# One file lies in /etc.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
configure_file(cmake/add_archives.cmake.in ${PROJECT_BINARY_DIR}/add_archives.cmake @ONLY)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_BINARY_DIR}/add_archives.cmake)

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "Tensors of some KiB to many MiB go beside gRPC instead of inside it: by shared
memory on one host, over TCP or NIXL between hosts, and in the message as the
last resort.
.
This package holds the shared libraries.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "tensorferry, tensorferry-ucx")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/debian/triggers)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtensorferry-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "Headers, static libraries, and what CMake and pkg-config need to find them.")
# What tensorferryConfig.cmake looks for, and what the headers include.
string(JOIN ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
       ${own_library} libabsl-dev libcpp-httplib-dev libgrpc++-dev libprotobuf-dev libxxhash-dev
       pkg-config prometheus-cpp-dev protobuf-compiler protobuf-compiler-grpc)

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME tensorferry)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION net)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "The command tensorferry sends tensors from a gateway and receives them as a
worker, and finds out why a lane is off or slow. With it come a systemd service
for a worker (not enabled), alert rules for Prometheus and a Grafana dashboard.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
    ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/tensorferry/grpc
    ${PROJECT_BINARY_DIR}/tensorferry/prometheus)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${own_library}, adduser")
foreach(script conffiles postinst prerm postrm)
  list(APPEND CPACK_DEBIAN_TOOLS_PACKAGE_CONTROL_EXTRA
       ${PROJECT_SOURCE_DIR}/deploy/debian/${script})
endforeach()

set(CPACK_DEBIAN_UCX_PACKAGE_NAME tensorferry-ucx)
set(CPACK_DEBIAN_UCX_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_UCX_DESCRIPTION "The module by which lane remote goes over RDMA fabrics.
It is opened at run time, so that nothing else needs UCX.")
set(CPACK_DEBIAN_UCX_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_UCX_PACKAGE_DEPENDS "${own_library}")

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} name)
  install(FILES deploy/debian/copyright
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${name}_PACKAGE_NAME}
          COMPONENT ${component})
endforeach()
include(CPack)
