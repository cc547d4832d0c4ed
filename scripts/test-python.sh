#!/usr/bin/env bash
# Tests the Python package as a user gets it: source archive, pip install, pytest, in a virtual environment of its own.
#
#   scripts/test-python.sh VENV [pytest argument...]
#
# TORCH names another version of PyTorch ("torch==2.10.0"); CONVNORM_CUDA=ON builds the operators for GPUs too. What is
# installed already is used as it is; the package is built again when its sources changed.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
shift
python=$venv/bin/python

[[ -x $venv/bin/pip ]] || "${PYTHON:-python3}" -m venv "$venv"
# diffusers and torchfcpe bring the networks of tests/python/test_networks.py.
"$python" -c 'import torch, numpy, pytest, scikit_build_core, build, diffusers, torchfcpe, matplotlib' >/dev/null 2>&1 ||
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${TORCH:-torch}" numpy pytest scikit-build-core build \
    diffusers torchfcpe matplotlib

# PyTorch is there already: without isolation its download for the build is spared.
archives=$venv/archives
rm -rf "$archives"
"$python" -m build --quiet --sdist --no-isolation --outdir "$archives" .
archive=$(echo "$archives"/convnorm-*.tar.gz)
stamp=$venv/installed.sha256
if ! sha256sum --status --check "$stamp" 2>/dev/null; then
  rm -f "$stamp"
  CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "$venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation \
    --no-deps --force-reinstall "--config-settings=cmake.define.CONVNORM_CUDA=${CONVNORM_CUDA:-OFF}" "$archive"
  sha256sum "$archive" >"$stamp"
fi

exec "$python" -m pytest -q -p no:cacheprovider tests/python "$@" </dev/null
