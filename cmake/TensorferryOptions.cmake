# Compile options for our own targets: warnings (errors, unless we are a part of another project), one of the sanitizers
# or clang-tidy if asked for.
include(GNUInstallDirs)

# For what is installed: hides all that is not marked TENSORFERRY_EXPORT.
function(tensorferry_library target)
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    DEFINE_SYMBOL ""  # so that ccache compiles both kinds of library once
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  tensorferry_options(${target})
endfunction()

function(tensorferry_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
  if(TENSORFERRY_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TENSORFERRY_TIDY AND NOT target MATCHES "_test(ing)?$")
    # GoogleTest's headers would take it many seconds for each test.
    set_target_properties(${target} PROPERTIES CXX_CLANG_TIDY "clang-tidy-14;--quiet")
  endif()
  if(TENSORFERRY_BUILD_FUZZ AND NOT target MATCHES "_test(ing)?$")
    # What a fuzz target calls tells it which branches an input took.
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  tensorferry_sanitize(${target})
endfunction()

# Without the warnings: for generated code.
function(tensorferry_sanitize target)
  if(TENSORFERRY_SANITIZE STREQUAL "address")
    # To look at an object, vptr opens a pipe: out of file descriptors, as some tests are, it calls any object invalid.
    target_compile_options(${target} PUBLIC -fsanitize=address,undefined -fno-sanitize=vptr
                           -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  elseif(TENSORFERRY_SANITIZE STREQUAL "thread")
    target_compile_options(${target} PUBLIC -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=thread)
  elseif(TENSORFERRY_SANITIZE)
    message(FATAL_ERROR "TENSORFERRY_SANITIZE=${TENSORFERRY_SANITIZE}: use address or thread")
  endif()
endfunction()
