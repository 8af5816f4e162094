# Compile options for our own targets: warnings are errors, and one of the sanitizers if asked for.
include(GNUInstallDirs)

function(tensorferry_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror)
  tensorferry_sanitize(${target})
endfunction()

# Without the warnings: for generated code.
function(tensorferry_sanitize target)
  if(TENSORFERRY_SANITIZE STREQUAL "address")
    target_compile_options(${target} PUBLIC -fsanitize=address,undefined -fno-omit-frame-pointer
                           -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  elseif(TENSORFERRY_SANITIZE STREQUAL "thread")
    target_compile_options(${target} PUBLIC -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=thread)
  elseif(TENSORFERRY_SANITIZE)
    message(FATAL_ERROR "TENSORFERRY_SANITIZE=${TENSORFERRY_SANITIZE}: use address or thread")
  endif()
endfunction()
