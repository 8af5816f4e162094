#!/usr/bin/env bash
# A bare Debian 12 in a folder: what is essential, apt, and the packages that are named. Mirror and proxies are this
# machine's. Prints the folder, which is made once: copy it, and change the copy.
#
#   base=$(ci/bare_base.sh [PACKAGE...])     # as root
#
# Its name says what it was made from: these packages, what apt knows here of Debian, and this script.
set -euo pipefail

script=${BASH_SOURCE[0]}
top=$(cd "$(dirname "$script")/.." && pwd)
((EUID == 0)) || { echo "$script: needs root" >&2; exit 1; }
command -v mmdebstrap >/dev/null || { echo "$script: needs mmdebstrap" >&2; exit 1; }

# Of each list of packages that this machine has from Debian: FORMAT, as apt-get indextargets knows it.
debian_lists() {
  apt-get indextargets --format "$1" 'Created-By: Packages' 'Origin: Debian' |
    grep -E 'bookworm(-updates|-security)?[ _]main' | sort -u
}

# shellcheck disable=SC2016 # apt-get expands these
sources() {
  debian_lists 'deb $(SITE) $(RELEASE) $(COMPONENT)'
}

sources >/dev/null || apt-get update >&2
# shellcheck disable=SC2016
inputs=$(sources && debian_lists '$(FILENAME)' | xargs stat --format '%n %s %Y' && echo "$@" && cat "$script")
base=$top/build/bare/$(sha256sum <<<"$inputs" | head -c 16)
if [[ ! -d $base ]]; then
  rm -rf --one-file-system "$top/build/bare"
  mkdir -p "$top/build/bare"
  making=$(mktemp -d "$top/build/bare/making.XXXXXX")
  # It is no system to be kept: written without waiting for the disk.
  sources | mmdebstrap --quiet --variant=minbase --mode=root --dpkgopt=force-unsafe-io \
    --include="$(IFS=, && echo "$*")" bookworm "$making" - >&2
  mv "$making" "$base"
fi
echo "$base"
