#!/usr/bin/env bash
# Installs the Debian packages that the build, the tests and the demo need and that are not there yet. Asks nothing;
# where nothing is missing it touches neither the network nor the system.
#
#   scripts/install-deps.sh [package...]    the packages below, and those named
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config
  libhwy-dev libfmt-dev nlohmann-json3-dev libcli11-dev libsndfile1-dev
  libgtest-dev libgmock-dev librapidcheck-dev
  alsa-utils python3 python3-numpy python3-matplotlib
  "$@"
)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install-deps: this is not a Debian system, so nothing was installed; provide these yourself and run make with" \
    "DEPS=: to skip this step: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  # pkg-config, for one, is provided by pkgconf on some releases: ask for what is installed under that name.
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install-deps: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install-deps: installing needs root, and there is no sudo; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "install-deps: installing ${missing[*]}"
# env, because sudo drops the variables of its caller.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
"${apt[@]}" update </dev/null
"${apt[@]}" install --yes --no-install-recommends "${missing[@]}" </dev/null
