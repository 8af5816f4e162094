# The builds of the tree, each in a folder of its own.
# shellcheck shell=bash disable=SC2154,SC2034 # dev and its parts share variables

jobs=$(nproc)
readonly jobs
# A fresh clone in another folder finds what an earlier one compiled.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

readonly command_path=$root/build/tools/tensorferry

# What CMake is told for each build. clang's serves three stages: it is checked by clang-tidy as it compiles, and
# fuzzed and tested as it is under AddressSanitizer.
build_options() {
  local checked=(-DCMAKE_BUILD_TYPE=None "-DCMAKE_CXX_FLAGS=-O1 -g1")
  case $1 in
    build) ;;
    build-shared)
      build_options build-static
      printf '%s\n' -DBUILD_SHARED_LIBS=ON "-DTENSORFERRY_STATIC_BUILD=$root/build-static"
      ;;
    build-static) printf '%s\n' -DCMAKE_INSTALL_PREFIX=/usr -DTENSORFERRY_BUILD_TESTS=OFF -DTENSORFERRY_BUILD_BENCH=OFF ;;
    build-clang)
      printf '%s\n' "${checked[@]}" -DCMAKE_CXX_COMPILER=clang++-14 -DTENSORFERRY_SANITIZE=address \
        -DTENSORFERRY_TIDY=ON -DTENSORFERRY_BUILD_FUZZ=ON -DTENSORFERRY_BUILD_BENCH=OFF
      ;;
    build-tsan) printf '%s\n' "${checked[@]}" -DTENSORFERRY_SANITIZE=thread -DTENSORFERRY_BUILD_BENCH=OFF ;;
    *) die "no build is called $1" ;;
  esac
}

# configure FOLDER: only when it was not, or was with other options; ninja does it again as files change.
configure() {
  local dir=$1 options
  mapfile -t options < <(build_options "$dir")
  options=(-G Ninja -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DTENSORFERRY_UCX=ON "${options[@]}")
  [[ ! -e $dir/build.ninja || $(cat "$dir/options" 2>/dev/null) != "${options[*]}" ]] || return 0
  # Without --fresh, options that are gone would stay.
  cmake --fresh -S . -B "$dir" "${options[@]}" && echo "${options[*]}" >"$dir/options"
}

# compile FOLDER [TARGET...]
compile() {
  local dir=$1
  shift
  configure "$dir" && nice ninja -C "$dir" -j "$jobs" "$@"
}

# The Debian packages, into build/packages.
make_packages() {
  local folder=$root/build/packages
  compile build-shared && compile build-static tensorferry_grpc tensorferry_prometheus || return
  rm -rf "$folder" && cpack --config build-shared/CPackConfig.cmake -B "$folder" && rm -rf "$folder/_CPack_Packages"
}
