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
# Becomes the program: call it in a shell of its own.
run_shard() {
  exec env GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX="$1" "$2" --gtest_brief=1 --gtest_filter="$3" >"$folder/$1" 2>&1
}
shard=0
while [ "$shard" -lt "$shards" ]; do
  run_shard "$shard" "$1" "${2:-*}" &
  pids="$pids $!"
  shard=$((shard + 1))
done
failed=0
shard=0
for pid in $pids; do
  code=0
  wait "$pid" || code=$?
  cat "$folder/$shard"
  # On a busy machine LeakSanitizer itself may crash at the end of a process, after its tests.
  if [ "$code" != 0 ] && grep -q 'LeakSanitizer has encountered a fatal error' "$folder/$shard"; then
    echo "The C++ tests, process $((shard + 1)) of $shards: LeakSanitizer failed itself; once more"
    code=0
    (run_shard "$shard" "$1" "${2:-*}") || code=$?
    cat "$folder/$shard"
  fi
  if [ "$code" != 0 ]; then
    echo "The C++ tests, process $((shard + 1)) of $shards: exit code $code"
    failed=1
  fi
  shard=$((shard + 1))
done
exit $failed
