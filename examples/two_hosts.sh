#!/usr/bin/env bash
# Two hosts on one machine: a gateway's and a worker's network namespace, joined by a veth pair. The gateway's sends
# FILEs to the worker over lane remote, and the worker proves what it received.
#
#   sudo examples/two_hosts.sh photo.jpg
#
# The command is $TENSORFERRY, else build/tools/tensorferry, else the one in $PATH. Needs root and iproute2. What it
# makes is gone when it ends, also when it fails or is interrupted.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tensorferry=${TENSORFERRY:-$root/build/tools/tensorferry}
[[ -x $tensorferry ]] || tensorferry=tensorferry
readonly gateway=tensorferry-gateway-$$ worker=tensorferry-worker-$$
readonly gateway_ip=10.0.0.5 worker_ip=10.0.0.7 network=10.0.0.0/24
worker_pid='' sender_pid=''

fail() {
  echo "two_hosts.sh: $*" >&2
  exit 1
}

clean_up() {
  local pid host
  for pid in $sender_pid $worker_pid; do
    { kill "$pid" && wait "$pid"; } 2>/dev/null || true
  done
  # With a namespace go its interfaces and addresses.
  for host in "$gateway" "$worker"; do
    [[ ! -e /run/netns/$host ]] || ip netns del "$host"
  done
}

make_hosts() {
  ip netns add "$gateway"
  ip netns add "$worker"
  ip link add eth0 netns "$gateway" type veth peer name eth0 netns "$worker"
  ip -n "$gateway" addr add "$gateway_ip/24" dev eth0
  ip -n "$worker" addr add "$worker_ip/24" dev eth0
  ip -n "$gateway" link set eth0 up
  ip -n "$worker" link set eth0 up
}

# The worker may dial the gateways of its network, and says in its first line where it listens.
start_worker() {
  local ready
  coproc WORKER { exec ip netns exec "$worker" "$tensorferry" worker --listen "$worker_ip:0" --allow "$network"; }
  # shellcheck disable=SC2153 # coproc sets it
  worker_pid=$WORKER_PID
  read -r ready <&"${WORKER[0]}" || fail "the worker did not start"
  echo "$ready"
  address=$(grep -oE "$worker_ip:[0-9]+" <<<"$ready")
}

(($#)) || fail "usage: two_hosts.sh FILE..."
((EUID == 0)) || fail "needs root, for network namespaces"
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
make_hosts
start_worker
# In the background, so that a signal is heard meanwhile.
ip netns exec "$gateway" "$tensorferry" send "$@" --to "$address" --lane remote &
sender_pid=$!
wait "$sender_pid"
