#!/usr/bin/env bash
# Builds the command line for arm64 and runs its self-test, which holds every path against the fp64 reference, under
# emulation: the NEON kernels are tested on machines that have none.
#
#   scripts/test-neon.sh BUILD_FOLDER
#
# Needs g++-aarch64-linux-gnu and qemu-user. The arm64 libraries are downloaded by apt and unpacked below the build
# folder; nothing is installed, and the system's list of architectures stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath -m "${1:?usage: scripts/test-neon.sh BUILD_FOLDER}")
sysroot=$build/sysroot
multiarch=usr/lib/aarch64-linux-gnu
packages=(libhwy-dev libfmt-dev nlohmann-json3-dev libcli11-dev libsndfile1-dev libgomp1)

if [[ ! -e $sysroot/complete ]]; then
  apt=$build/apt
  mkdir -p "$apt"/{state/lists,cache/archives}/partial "$sysroot"
  : >"$apt/state/status"
  private=(-qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Install-Recommends=0
    -o APT::Sandbox::User= -o "Dir::State=$apt/state" -o "Dir::State::status=$apt/state/status" -o "Dir::Cache=$apt/cache")
  apt-get "${private[@]}" update
  apt-get "${private[@]}" --yes --download-only install "${packages[@]}"
  for archive in "$apt"/cache/archives/*.deb; do dpkg-deb --extract "$archive" "$sysroot"; done
  touch "$sysroot/complete"
fi

export PKG_CONFIG_LIBDIR=$sysroot/$multiarch/pkgconfig:$sysroot/usr/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$sysroot
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
  -DCMAKE_FIND_ROOT_PATH="$sysroot" -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER \
  -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY \
  -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY \
  -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath-link,$sysroot/$multiarch" \
  -DCONVNORM_BUILD_TESTS=OFF -DCONVNORM_BUILD_EXAMPLES=OFF
cmake --build "$build" --parallel "$(nproc)"

run=(qemu-aarch64 -L "$sysroot" "$build/cli/convnorm")
"${run[@]}" info
"${run[@]}" selftest --threads 2
