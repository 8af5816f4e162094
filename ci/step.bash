# How ./dev runs a command: quietly into a log, with one line for a person that says what, how long and how it went.
# shellcheck shell=bash disable=SC2154,SC2034 # dev and its parts share variables

readonly logs=$root/build/logs
ticker=

die() {
  printf './dev: %s\n' "$*" >&2
  exit 1
}

# On a terminal: keeps one line that shows the title and the newest line of the log.
tick() {
  local title=$1 log=$2 start=$SECONDS width
  while sleep 1; do
    width=$(tput cols 2>/dev/null || echo 80)
    printf '\r\e[K%.*s' "$((width - 1))" "$title  $((SECONDS - start)) s  $(tail -n 1 "$log" | tr -d '\r\e')"
  done
}

stop_ticker() {
  [[ -n $ticker ]] || return 0
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  ticker=
  printf '\r\e[K'
}
trap stop_ticker EXIT

# logged NAME TITLE COMMAND...: runs the command into build/logs/NAME.log.
logged() {
  local log=$logs/$1.log title=$2 status=0
  shift 2
  mkdir -p "$logs"
  : >"$log"
  if [[ -t 1 ]]; then
    tick "$title" "$log" &
    ticker=$!
  fi
  "$@" </dev/null >"$log" 2>&1 || status=$?
  stop_ticker
  return "$status"
}

show_log() {
  local lines=60
  [[ ${CI:-} != true ]] || lines=1000 # nobody can look into the log there
  printf -- '--- the last lines of %s\n' "$logs/$1.log" >&2
  tail -n "$lines" "$logs/$1.log" >&2
}

# step NAME TITLE COMMAND...: logged, with a line when it took noticeable time; failing ends ./dev.
step() {
  local name=$1 title=$2 start=$SECONDS
  shift 2
  if ! logged "$name" "$title" "$@"; then
    show_log "$name"
    die "$title: failed after $((SECONDS - start)) s"
  fi
  ((SECONDS - start < 2)) || printf '%s: %s s\n' "$title" "$((SECONDS - start))"
}
