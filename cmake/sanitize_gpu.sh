# SPDX-License-Identifier: BSD-3-Clause
# Runs tests of GPU kernels under compute-sanitizer, which makes them a hundred times slower: each
# in a process of its own, six at a time, for each needs a few gigabytes of the GPU.
# $1: compute-sanitizer, $2: the test program, $3: which tests (a --gtest_filter).
at_once=6
logs=$(mktemp -d)
tests=$("$2" --gtest_list_tests --gtest_filter="$3" | awk '/^[^ ].*\.$/ { suite = $1 } /^  / { print suite $1 }')
for tool in memcheck racecheck; do
  for test in $tests; do echo "$tool $test"; done
done >"$logs/all"
# Launches that wait for each other's end would hide what the tools look for. A kernel that was not
# compiled ahead is looked for before it is compiled: no error.
cat >"$logs/one.sh" <<'ONE'
options=""
[ "$1" = memcheck ] && options="--report-api-errors no"
if env -u CUDA_LAUNCH_BLOCKING "$SANITIZER" --tool "$1" $options --error-exitcode 1 "$PROGRAM" --gtest_filter="$2" >"$LOGS/$1.$2" 2>&1; then
  echo "-- $1 $2: $(grep SUMMARY "$LOGS/$1.$2")"
else
  echo "-- $1 $2: FAILED"
  cat "$LOGS/$1.$2"
  exit 1
fi
ONE
SANITIZER=$1 PROGRAM=$2 LOGS=$logs xargs -P "$at_once" -L 1 sh "$logs/one.sh" <"$logs/all"
failed=$?
rm -rf "$logs"
exit $failed
