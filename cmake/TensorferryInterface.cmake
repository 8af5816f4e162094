# tensorferry_interface_hash(OUT ROOT HEADER...): of the text of these headers, which lie below ROOT, and of all of ROOT's
# that they include: two builds with one hash lay out and order the same what is declared there. When one of them
# changes, CMake runs again.
#
#   cmake -DROOT=. -DHEADER=tensorferry/engine/ucx/ucx_abi.h -P cmake/TensorferryInterface.cmake     # prints it
cmake_policy(VERSION 3.25)

function(tensorferry_interface_hash out root)
  set(headers ${ARGN})
  set(seen "")
  set(hashes "")
  while(headers)
    list(POP_FRONT headers header)
    if(header IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${header})
    file(SHA256 ${root}/${header} hash)
    string(APPEND hashes "${hash} ${header}\n")
    file(STRINGS ${root}/${header} includes REGEX "^#include \"tensorferry/")
    list(TRANSFORM includes REPLACE "^#include \"([^\"]+)\".*" "\\1")
    list(SORT includes)
    list(APPEND headers ${includes})
    if(NOT CMAKE_SCRIPT_MODE_FILE)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${root}/${header})
    endif()
  endwhile()
  string(SHA256 hash "${hashes}")
  string(SUBSTRING ${hash} 0 16 hash)
  set(${out} ${hash} PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  tensorferry_interface_hash(hash ${ROOT} ${HEADER})
  message(${hash})
endif()
