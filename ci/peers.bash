# Brings SMG's own exporter, puller and servicer at pinned versions: .peers and build/peers. Quick when all is there.
# shellcheck shell=bash disable=SC2154 # dev and its parts share variables

# Debian's Rust and libclang, whatever else is on the PATH.
debian_cargo() {
  nice env RUSTC=/usr/bin/rustc LIBCLANG_PATH=/usr/lib/llvm-14/lib CARGO_TARGET_DIR="$root/build/peers/target" \
    /usr/bin/cargo "$@"
}

# The lock is committed without the address of the crates' index, which cargo knows and puts into every entry.
complete_lock() { # PACKAGE
  local index
  debian_cargo generate-lockfile --manifest-path "$1/Cargo.toml" &&
    index=$(grep -m 1 '^source = ' "$1/Cargo.lock") &&
    awk -v index_line="$index" '/^checksum = / { print index_line } { print }' "$1/crates.lock" >"$1/Cargo.lock"
}

build_stock_exporter() {
  local package=$root/build/peers/rust_exporter
  rm -rf "$package" "$root/build/peers/made-from" &&
    mkdir -p "$root/build/peers" &&
    cp -r "$root/tests/peers/rust_exporter" "$package" &&
    complete_lock "$package" &&
    debian_cargo build --release --locked --manifest-path "$package/Cargo.toml" &&
    exporter_sources >"$root/build/peers/made-from"
}

exporter_sources() {
  (cd "$root/tests/peers/rust_exporter" && sha256sum Cargo.toml crates.lock src/*.rs)
}

setup_peers() {
  setup_venv setup-peers "Installing the stock peers" "$root/.peers" "$root/tests/peers/requirements.txt" --no-deps
  [[ $(cat "$root/build/peers/made-from" 2>/dev/null) != "$(exporter_sources)" ]] || return 0
  step setup-exporter "Building the stock exporter" build_stock_exporter
}

# What only ./dev bench runs against.
setup_bench_peers() {
  setup_venv setup-bench "Installing the peers of the benchmark" "$root/.bench" "$root/bench/requirements.txt" --no-deps
}
