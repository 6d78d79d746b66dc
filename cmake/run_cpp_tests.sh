# SPDX-License-Identifier: BSD-3-Clause
# Runs the C++ tests in three processes a core, twelve at most: many tests wait, and leave their
# core to others. $1: the program, $2: --gtest_filter. What a process says is shown when it ends.
set -e
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc 2>/dev/null || echo 1) # which nproc heeds
shards=$((cores < 4 ? 3 * cores : 12))
folder=$(mktemp -d)
pids=
trap 'rm -rf "$folder"' EXIT
trap 'kill $pids 2>/dev/null; exit 130' INT TERM
shard=0
while [ "$shard" -lt "$shards" ]; do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard "$1" --gtest_brief=1 --gtest_filter="${2:-*}" \
    >"$folder/$shard" 2>&1 &
  pids="$pids $!"
  shard=$((shard + 1))
done
failed=0
shard=0
for pid in $pids; do
  code=0
  wait "$pid" || code=$?
  cat "$folder/$shard"
  if [ "$code" != 0 ]; then
    echo "The C++ tests, process $((shard + 1)) of $shards: exit code $code"
    failed=1
  fi
  shard=$((shard + 1))
done
exit $failed
