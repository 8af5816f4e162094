#!/usr/bin/env bash
# What a stranger does: a bare Debian 12 that has git, a clone, ./dev demo and ./dev test.
#
#   ci/bare_root.sh [COMMAND...]     # as root; the commands run in the clone instead: ci/bare_root.sh './dev build'
#
# The committed HEAD is what is cloned. Mirror, proxies and certificates are this machine's.
# The system lives in a temporary folder and in namespaces of its own, and is gone afterwards.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
system=
((EUID == 0)) || { echo "ci/bare_root.sh: needs root, for chroot" >&2; exit 1; }

remove_system() {
  [[ -z $system ]] || rm -rf --one-file-system "$system"
}
trap remove_system EXIT

make_system() {
  local base
  base=$("$top/ci/bare_base.sh" git)
  cp -a "$base/." "$system"
  cp --dereference /etc/resolv.conf /etc/hosts "$system/etc/"
  if [[ -d /usr/local/share/ca-certificates ]]; then
    cp -r /usr/local/share/ca-certificates "$system/usr/local/share/"
  fi
  if [[ -n ${PIP_CERT:-} ]]; then
    install -D -m 644 "$PIP_CERT" "$system$PIP_CERT"
  fi
  git -C "$top" bundle create --quiet "$system/root/tensorferry.bundle" HEAD
}

# in_system SCRIPT: with the environment that a login has, and what names proxies and certificates.
in_system() {
  local passed=() name
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_CERT PIP_INDEX_URL PIP_DEFAULT_TIMEOUT CI; do
    [[ -z ${!name:-} ]] || passed+=("$name=${!name}")
  done
  # shellcheck disable=SC2016 # expanded by the inner shell
  unshare --mount --pid --fork --kill-child --propagation private sh -euc '
    system=$1 script=$2
    shift 2
    mount --bind "$system" "$system"
    mount -t proc proc "$system/proc"
    mount --rbind /sys "$system/sys"
    mount --rbind /dev "$system/dev"
    mount -t tmpfs tmpfs "$system/dev/shm"
    mount -t tmpfs tmpfs "$system/run"
    exec chroot "$system" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@" bash -euc "$script"
  ' sh "$system" "$1" "${passed[@]}"
}

main() {
  local commands=("$@") command
  ((${#commands[@]})) || commands=('./dev demo' './dev test')
  system=$(mktemp -d /var/tmp/tensorferry-bare.XXXXXX)
  make_system
  in_system 'cd; git clone --quiet tensorferry.bundle tensorferry'
  for command in "${commands[@]}"; do
    echo "== $command"
    in_system "cd ~/tensorferry; time $command"
  done
}

main "$@"
