# The Python package: built by pinned tools in build/wheel-tools, into build/wheel. Quick when nothing has changed.
# shellcheck shell=bash disable=SC2154,SC2034 # dev and its parts share variables

readonly wheel_dir=$root/build/wheel
# The package as tests import it, and its own pinned tools.
readonly wheel_site=$root/build/wheel-site wheel_tools=$root/build/wheel-tools

wheel_path() {
  echo "$wheel_dir"/tensorferry-*.whl
}

# What a wheel is made from.
wheel_sources() {
  find python tensorferry cmake CMakeLists.txt -type f ! -name '*.pyc' ! -name '*_test.cc' -print0 | sort -z | xargs -0 sha256sum
}

build_wheel() {
  rm -rf "$wheel_dir" "$wheel_site"
  # The caches of Python and of the compilers are the only ones: nothing is fetched here.
  nice "$wheel_tools/bin/pip" wheel --disable-pip-version-check --no-input --no-index --no-deps --no-build-isolation \
    -w "$wheel_dir" --config-settings "build-dir=$root/build/wheel-build" \
    --config-settings cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache "$root/python" &&
    "$wheel_tools/bin/pip" install --disable-pip-version-check --no-input --no-index --no-deps \
      --target "$wheel_site" "$(wheel_path)"
}

make_wheel_tools() {
  [[ $(cat "$wheel_tools/made-from" 2>/dev/null) == "$(sha256sum <python/requirements.txt)" ]] ||
    make_venv "$wheel_tools" python/requirements.txt
}

# The extension module, which is in no other build, as clang and clang-tidy see it.
tidy_extension() {
  make_wheel_tools || return
  local includes=(-I "$root" -isystem "$("$wheel_tools/bin/python" -m nanobind --include_dir)"
    -isystem "$("$wheel_tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')")
  printf '%s\0' python/src/*.cc | nice xargs -0 -P "$jobs" -I '{}' clang-tidy-14 --quiet \
    '--checks=clang-diagnostic-*' '--header-filter=(^|/)python/src/.*\.h$' '{}' -- \
    -std=c++20 -Wall -Wextra -Wshadow -Wnon-virtual-dtor "${includes[@]}"
}

make_wheel() {
  local sources
  make_wheel_tools || return
  sources=$(wheel_sources | sha256sum)
  [[ $(cat "$wheel_dir/made-from" 2>/dev/null) != "$sources" ]] || return 0
  build_wheel && echo "$sources" >"$wheel_dir/made-from"
}
