# shellcheck shell=bash
# Shared by the scripts in this folder; source it. Sets `root` to the project's folder.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\n== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

is_installed() { [[ $(dpkg-query -W -f='${Status}' "$1" 2>/dev/null) == *"ok installed"* ]]; }
is_in_release() { [[ $(LC_ALL=C apt-cache policy "$1" 2>/dev/null) =~ Candidate:\ [^\(] ]]; }

# choose_package PACKAGE|PACKAGE...: prints the one that is installed, else the first one that the release has, else the last one.
choose_package() {
  local package
  for package in ${1//|/ }; do is_installed "$package" && echo "$package" && return; done
  for package in ${1//|/ }; do is_in_release "$package" && break; done
  echo "$package"
}

# install_packages GROUP...: installs what is missing of the groups in packages.txt, with root or sudo.
install_packages() {
  local wanted missing=() sudo='' i
  wanted=$(for group in "$@"; do sed -n "s/^$group \([^ ]*\).*/\1/p" "$root/scripts/packages.txt"; done)
  for package in $wanted; do
    is_installed "$(choose_package "$package")" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "packages are missing (${missing[*]}); run as root or install sudo"
    sudo=sudo
  fi
  say "Installing ${#missing[@]} packages: ${missing[*]}"
  $sudo apt-get update -q || die "apt-get update failed"
  for i in "${!missing[@]}"; do missing[i]=$(choose_package "${missing[i]}"); done
  # In Debian 12 libboost1.81-dev replaces the default 1.74: say so instead of removing things silently.
  local removed
  removed=$(apt-get -s install --no-install-recommends "${missing[@]}" | sed -n 's/^Remv \([^ ]*\).*/\1/p' | tr '\n' ' ')
  if [ -n "$removed" ] && [ "${MONOGRAPH_ALLOW_REMOVALS:-}" != 1 ]; then
    die "installing would remove: $removed. If that is fine, run again with MONOGRAPH_ALLOW_REMOVALS=1"
  fi
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# python_environment: prints the interpreter of .cache/python, made once, that has the packages which the Python package and its tests need; fails where they cannot be had.
python_environment() {
  local venv=$root/.cache/python wanted=$root/tests/python/requirements.txt
  if ! cmp -s "$wanted" "$venv/installed"; then
    say "Installing what tests/python/requirements.txt names into .cache/python" >&2
    { python3 -m venv --clear "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 20 -r "$wanted" && cp "$wanted" "$venv/installed"; } >&2 ||
      { echo "cannot install them: the tests of the Python package are left out" >&2; return 1; }
  fi
  echo "$venv/bin/python"
}

# configure_and_build BUILD_DIR "CMAKE_OPTIONS" [TARGET...]: warnings are errors in CI, for all scripts alike, so that one does not compile anew what another has compiled.
configure_and_build() {
  local build=$1 options=$2
  shift 2
  [ "${CI:-}" != true ] || options+=" -DMG_WERROR=ON"
  options+=" -DMG_JOIN_SOURCES=ON"  # half the time from nothing: CONTRIBUTING.md
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1  # what was not compiled before is not preprocessed for the cache alone
  export CCACHE_SLOPPINESS=pch_defines,time_macros  # without it nothing is remembered that reads the tests' precompiled header
  # shellcheck disable=SC2086  # options are words
  cmake -S "$root" -B "$build" -G Ninja $options >"$build.log" 2>&1 || { cat "$build.log"; die "cmake failed"; }
  rm -f "$build.log"
  cmake --build "$build" --parallel "$(nproc)" ${1:+--target "$@"}
}

# gpu_check_programs LIST: the programs that scripts/gpu_check runs without --part others, where LIST is test_programs.txt of a build.
gpu_check_programs() {
  printf '%s\n' monograph monograph-executor mnist_replica cnn_benchmarks gpu_bench
  awk '$3 == "gpu" {print $1}' "$1"
}

# check_carried FILE: fails if FILE and the project's files that git does not ignore are together larger than 62 MiB.
check_carried() {
  local tree bytes
  tree=$(cd "$root" && git ls-files -z --cached --others --exclude-standard | xargs -0 stat -c %s 2>/dev/null | awk '{sum += $1} END {print sum + 0}')
  bytes=$((tree + $(stat -c %s "$1")))
  echo "the tree and $(basename "$1"): $tree bytes and $((bytes - tree)), together $((bytes / 1048576)) MiB"
  [ "$bytes" -le $((62 * 1048576)) ] || die "the tree and $1 are together larger than 62 MiB, the most that can be carried"
}
