# Brings Debian's packages and the Python tools. Asks nothing, and is quick when all is there.
# shellcheck shell=bash disable=SC2154,SC2034 # dev and its parts share variables

# The packages of the given groups of ci/packages.txt.
listed_packages() {
  awk -v groups=" $* " '!/^#/ && index(groups, " " $1 " ") { print $2 }' "$root/ci/packages.txt"
}

missing_packages() {
  local wanted
  mapfile -t wanted < <(listed_packages "$@")
  comm -23 <(printf '%s\n' "${wanted[@]}" | sort) \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
      sed -n 's/^installed //p' | sort)
}

is_debian_12() (
  # shellcheck source=/dev/null
  . /etc/os-release 2>/dev/null
  [[ ${ID:-} == debian && ${VERSION_ID:-} == 12 ]] && command -v apt-get >/dev/null
)

as_root() {
  if ((EUID == 0)); then
    "$@"
  else
    sudo -n "$@"
  fi
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"
}

install_packages() {
  apt_get update && apt_get install --no-install-recommends "$@"
}

setup_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  is_debian_12 || die "needs Debian 12 to install ${missing[*]}; on another system install what ci/packages.txt lists," \
    "then build with CMake (see CONTRIBUTING.md)"
  ((EUID == 0)) || sudo -n true 2>/dev/null ||
    die "these packages are missing: ${missing[*]}. Run as root, or as a user whom sudo asks no password" \
      "(run 'sudo -v' first), or install them by hand"
  step setup-packages "Installing ${#missing[@]} packages" install_packages "${missing[@]}"
}

# The programs of packages that would start a service of their own if they were installed.
unpack_packages() { # PACKAGE...
  local folder=$root/build/unpacked
  rm -rf "$folder" && mkdir -p "$folder/debs" &&
    apt_get update && (cd "$folder/debs" && apt-get -q -o Acquire::Retries=3 download "$@") &&
    for deb in "$folder"/debs/*.deb; do dpkg-deb -x "$deb" "$folder" || return; done &&
    rm -r "$folder/debs" && printf '%s\n' "$@" >"$folder/made-from"
}

setup_unpacked() {
  local wanted
  mapfile -t wanted < <(listed_packages unpack)
  # On another system what is on the PATH must do.
  is_debian_12 && [[ $(cat "$root/build/unpacked/made-from" 2>/dev/null) != "$(printf '%s\n' "${wanted[@]}")" ]] || return 0
  step setup-unpacked "Unpacking ${wanted[*]}" unpack_packages "${wanted[@]}"
}

make_venv() { # FOLDER REQUIREMENTS [PIP_OPTION...]
  local folder=$1 requirements=$2
  shift 2
  # Debian's own interpreter: what another python3 on the PATH was built with is unknown.
  rm -rf "$folder" &&
    /usr/bin/python3 -m venv "$folder" &&
    "$folder/bin/pip" install --disable-pip-version-check --no-input --only-binary :all: --require-hashes \
      -r "$requirements" "$@" &&
    sha256sum <"$requirements" >"$folder/made-from"
}

setup_venv() { # NAME TITLE FOLDER REQUIREMENTS [PIP_OPTION...]
  local name=$1 title=$2
  shift 2
  [[ $(cat "$1/made-from" 2>/dev/null) != "$(sha256sum <"$2")" ]] || return 0
  step "$name" "$title" make_venv "$@"
}

# setup GROUP...
setup() {
  setup_packages "$@"
  setup_venv setup-python "Installing the Python tools" "$root/.venv" "$root/tests/requirements.txt"
  [[ " $* " != *" test "* ]] || setup_unpacked
  [[ " $* " != *" peers "* ]] || setup_peers
  [[ " $* " != *" bench "* ]] || setup_bench_peers
}
