# Runs tests of GPU kernels under compute-sanitizer, in parts side by side: it makes them a hundred times slower.
# $1: compute-sanitizer, $2: the test program, $3: which tests.
parts=6
failed=0
logs=$(mktemp -d)
# A kernel that was not compiled ahead is looked for before it is compiled: no error.
for tool in "memcheck --report-api-errors no" racecheck; do
  running=""
  for part in $(seq 0 $((parts - 1))); do
    # Launches that wait for each other's end would hide what the tools look for.
    GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part env -u CUDA_LAUNCH_BLOCKING \
      "$1" --tool $tool --error-exitcode 1 "$2" --gtest_filter="$3" >"$logs/${tool%% *}.$part" 2>&1 &
    running="$running $!"
  done
  part=0
  tool=${tool%% *}
  for process in $running; do
    if wait "$process"; then
      echo "-- $tool, part $part: $(grep -c '  OK ' "$logs/$tool.$part") tests, $(grep SUMMARY "$logs/$tool.$part")"
    else
      failed=1
      echo "-- $tool, part $part: FAILED"
      cat "$logs/$tool.$part"
    fi
    part=$((part + 1))
  done
done
rm -rf "$logs"
exit $failed
