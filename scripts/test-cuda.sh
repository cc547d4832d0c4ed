#!/usr/bin/env bash
# Runs what needs a GPU, from a build that has CUDA: tests of calls and of launches beside one another, the operator's suite
# with tensors in device memory, random problems from several seeds, and the self-test under compute-sanitizer.
# Ends with status 0 if all of it passed.
#
# usage: scripts/test-cuda.sh BUILD [SEEDS [LOGS]]
#
# LOGS: a folder in which what each of them prints is kept, also of those that were cut off.
set -uo pipefail
build=${1:?usage: scripts/test-cuda.sh BUILD [SEEDS [LOGS]]}
seeds=${2:-4}
if [[ -n ${3:-} ]]; then
  logs=$3
  mkdir -p "$logs"
else
  logs=$(mktemp -d)
  trap 'rm -rf "$logs"' EXIT
fi
export CONVNORM_TEST_DEVICE=cuda OMP_WAIT_POLICY=passive
convnorm=$build/cli/convnorm

declare -A running=()
start() {  # name, command...
  local name=$1
  shift
  "$@" >"$logs/$name" 2>&1 &
  running[$name]=$!
}
failed=0
finish() {  # waits for all that was started; shows the beginning and the end of what failed, and of the rest its sum
  local name
  for name in $(printf '%s\n' "${!running[@]}" | sort); do
    if wait "${running[$name]}"; then
      printf '%-28s ok      %s\n' "$name" "$(grep -E 'PASSED|SUMMARY|PASS$' "$logs/$name" | tail -n 2 | tr '\n' ' ')"
    else
      failed=1
      printf '%-28s FAILED\n' "$name"
      # Of a long log its beginning, where the cause is, and its end.
      grep -vE '^\[ RUN|^\[ +OK|^\[-|^$|Host Frame|Saved host' "$logs/$name" | cut -c 1-400 >"$logs/$name.short"
      head -n 60 "$logs/$name.short"
      tail -n +61 "$logs/$name.short" | tail -n 20
    fi
  done
  running=()
}

"$convnorm" info
start test_cuda "$build"/tests/kernels/cuda/test_cuda
for shard in 0 1 2 3 4 5 6 7; do
  start "test_operator.$shard" env GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=$shard "$build"/tests/operator/test_operator
done
for shard in 0 1 2 3; do
  start "test_operator_full.$shard" env GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$shard \
    "$build"/tests/operator/test_operator_full
done
for ((seed = 1; seed <= seeds; ++seed)); do
  start "test_properties.$seed" env RC_PARAMS="seed=$seed max_success=200" "$build"/tests/operator/test_properties
done
finish
start chain "$convnorm" bench "@$(dirname "$0")/../bench/shapes/policy_chain.txt" --device cuda --chain --constant-weights
for tool in memcheck racecheck synccheck initcheck; do
  start "selftest_$tool" compute-sanitizer --tool $tool --error-exitcode 9 "$convnorm" selftest --device cuda
done
finish
if ((failed)); then echo "test-cuda: FAILED"; else echo "test-cuda: all passed"; fi
exit $failed
