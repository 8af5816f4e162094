# What ./dev test runs: stages, in an order that fails early, each quiet in a log of its own.
# A stage leaves its tests' outcomes in build/results/STAGE (JUnit XML, or checks.txt), where ci/tally.py counts them.
# shellcheck shell=bash disable=SC2154,SC2034 # dev and its parts share variables

readonly stages=(format unit process peers install python tidy asan fuzz tsan)
readonly python=$root/.venv/bin/python

declare -A stage_titles=(
  [format]="format and lint" [unit]="build and unit tests" [process]="process tests"
  [peers]="the stock peers"
  [install]="install and use" [python]="the Python package" [tidy]="clang and clang-tidy" [asan]="ASan and UBSan" [fuzz]="fuzz" [tsan]="TSan"
)

# Which tests: set by ./dev test.
filter='' long='' fuzz_seconds=10

# check NAME COMMAND...: a check that is no test runner's.
check() {
  local name=$1
  shift
  echo "== $name"
  if "$@"; then
    echo "passed $name" >>"$results/checks.txt"
  else
    echo "failed $name" >>"$results/checks.txt"
    return 1
  fi
}

run_units() { # FOLDER
  local options=(--no-tests=error)
  [[ -z $filter ]] || options=(--no-tests=ignore -R "$filter")
  # By convention the tests that only --long runs have a name that starts with Long, and those that need SMG's peers
  # one that starts with WithNixl.
  local without='\.WithNixl'
  [[ -n $long ]] || without+='|\.Long'
  options+=(-E "$without")
  # Without a line for each that began or passed: what failed is then at the end of the log.
  ctest --test-dir "$1" -j "$jobs" --output-on-failure --output-junit "$results/unit.xml" "${options[@]}" |
    grep -Ev '^ +Start +[0-9]+: | Passed +[0-9.]+ sec *$'
}

run_pytest() { # FOLDER TESTS...
  local dir=$1 status=0 options=() marks=() wanted
  shift
  [[ -z $filter ]] || options+=(-k "$filter")
  [[ -n $long ]] || marks+=("not long")
  [[ $dir == build ]] || marks+=("not plain_build")
  wanted="${marks[*]}"
  [[ -z $wanted ]] || options+=(-m "${wanted// not / and not }")
  "$python" -m pytest --command "$root/$dir/tools/tensorferry" --junit-xml "$results/pytest.xml" "${options[@]}" "$@" ||
    status=$?
  # 5: no test was selected, which is fine for a filter alone.
  [[ -n $filter && $status == 5 ]] || return "$status"
}

run_process_tests() { # FOLDER
  run_pytest "$1" --ignore tests/install --ignore tests/peers --ignore tests/python tests
}

stage_format() {
  local cpp py sh
  mapfile -t cpp < <(git ls-files '*.cc' '*.h')
  mapfile -t py < <(git ls-files '*.py')
  mapfile -t sh < <(git ls-files dev .ci/run 'ci/*sh' 'examples/*.sh')
  check clang-format clang-format-14 --dry-run --Werror --ferror-limit=1 "${cpp[@]}" &&
    check ruff-format "$python" -m ruff format --check "${py[@]}" &&
    check ruff "$python" -m ruff check "${py[@]}" &&
    check mypy "$python" -m mypy "${py[@]}" &&
    check mypy-oldest "$python" -m mypy --python-version 3.10 python/tensorferry examples/python &&
    check shellcheck shellcheck -x -a "${sh[@]}"
}

stage_unit() {
  compile build && run_units build
}

stage_process() {
  run_process_tests build
}

# Over tcp, whatever else UCX finds on this host: shared memory would hide what a network does.
stage_peers() {
  compile build &&
    UCX_TLS=tcp ctest --test-dir build --output-on-failure --no-tests=ignore \
      --output-junit "$results/unit.xml" -R "\.WithNixl.*$filter" &&
    run_pytest build tests/peers
}

stage_install() {
  make_packages && run_pytest build tests/install
}

stage_python() {
  compile build tools/tensorferry && make_wheel && PYTHONPATH=$wheel_site run_pytest build tests/python
}

# What UCX does to a process to see its memory and its crashes is the sanitizers' own business.
quiet_ucx() {
  export UCX_MEM_EVENTS=no UCX_HANDLE_ERRORS=none
}

stage_asan() {
  quiet_ucx
  export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1
  export LSAN_OPTIONS=suppressions=$root/ci/lsan.supp:print_suppressions=0
  export UBSAN_OPTIONS=print_stacktrace=1
  compile build-clang && run_units build-clang && run_pytest build-clang tests/command
}

stage_tsan() {
  quiet_ucx
  export TSAN_OPTIONS=suppressions=$root/ci/tsan.supp:second_deadlock_stack=1:print_suppressions=0:allocator_may_return_null=1
  # Of the process tests those whose processes are all ours: under TSan gRPC takes minutes, and is suppressed.
  compile build-tsan && run_units build-tsan && run_pytest build-tsan tests/command/test_export_pull.py
}

stage_tidy() {
  check clang-tidy compile build-clang && check clang-tidy-python tidy_extension
}

fuzz_one() { # PROGRAM
  local name corpus log seeds=()
  name=$(basename "$1")
  corpus=build-clang/fuzz/corpus/$name
  log=build-clang/fuzz/$name.log
  mkdir -p "$corpus" build-clang/fuzz/crashes
  mapfile -t seeds < <(find tensorferry tools -type d -path "*/testdata/corpus/$name")
  "$1" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
    -artifact_prefix="build-clang/fuzz/crashes/$name-" "$corpus" "${seeds[@]}" >"$log" 2>&1 && return
  cat "$log"
  return 1
}

stage_fuzz() {
  local program
  compile build-clang tensorferry_fuzz || return
  for program in build-clang/fuzz/*_fuzz; do
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
    check "$(basename "$program")" fuzz_one "$program" &
  done
  wait
  ! grep '^failed' "$results/checks.txt"
}

# without_aslr COMMAND...: becomes this command, where the kernel randomizes more address bits than g++ 12's TSan
# programs can bear, and where that can be switched off.
without_aslr() {
  (($(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0) > 28)) || return 0
  [[ $(cat /proc/self/personality) == 00000000 ]] && setarch -R true 2>/dev/null || return 0
  exec setarch -R "$@"
}

tally() {
  /usr/bin/python3 ci/tally.py "$@"
}

# run_stage NAME: one timed line, and its outcomes in build/results/NAME.
run_stage() {
  local name=$1 start=$SECONDS verdict=ok
  results=$root/build/results/$name
  rm -rf "$results"
  mkdir -p "$results"
  logged "$name" "${stage_titles[$name]}" "stage_$name" || verdict=FAILED
  # A stage that failed before any test did (it did not compile) counts as one failed test.
  [[ $verdict == ok ]] || tally --failed "$results" || echo "failed $name" >>"$results/checks.txt"
  # In CI nothing may be missing, so a test that was skipped has failed.
  if [[ $verdict == ok && ${CI:-} == true ]] && tally --skipped "$results"; then
    verdict=SKIPPED
  fi
  printf '%-7s %-22s %4s s  %s\n' "$verdict" "${stage_titles[$name]}" "$((SECONDS - start))" "$(tally "$results")"
  [[ $verdict == ok ]]
}

# run_stages NAME...: stops at the first that fails; the last line counts all tests.
run_stages() {
  local name start=$SECONDS status=0
  rm -rf "$root/build/results"
  for name in "$@"; do
    if ! run_stage "$name"; then
      show_log "$name"
      status=1
      break
    fi
  done
  printf 'all of it took %s s; logs are in %s\n' "$((SECONDS - start))" "$logs"
  tally "$root/build/results"
  return "$status"
}
