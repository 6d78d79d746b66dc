# SPDX-License-Identifier: BSD-3-Clause
# Builds the C++ tests under a sanitizer and runs them. $1: address, thread, undefined or
# address,undefined. A machine on which sanitized programs cannot run (no ptrace for the search for
# leaks, an unusual memory layout) is told by a program that does nothing, and skipped with its
# words; with SANITIZER_REQUIRED=1 that is a failure.
set -e
folder=build/$(echo "$1" | tr , -) # a comma would end what the linker is told of it
mkdir -p "$folder"
echo 'int main() { return 0; }' >"$folder/probe.cpp"
if ! said=$("${CXX:-c++}" "-fsanitize=$1" "$folder/probe.cpp" -o "$folder/probe" 2>&1 && "$folder/probe" 2>&1); then
  echo "make sanitize: skipped, programs under the $1 sanitizer do not run here:"
  echo "$said" | head -n 5
  [ -z "$SANITIZER_REQUIRED" ] || exit 1
  exit 0
fi
# shellcheck disable=SC2086
cmake -S . -B "$folder" -G Ninja "-DALTORCH_SANITIZE=$1" $CMAKE_ARGS
cmake --build "$folder" --target altorch_tests
# Some tests fork their peers: those start threads, which ThreadSanitizer must be told to allow.
# They run in a process of their own, without other threads: AddressSanitizer's allocator may stay
# locked in a child that is forked beside one. Tests whose ranks are stacks of one thread have their
# own process, too: AddressSanitizer takes other tests' stacks for wrong afterwards.
export TSAN_OPTIONS="die_after_fork=0 ${TSAN_OPTIONS:-}"
program=$folder/tests/cpp/altorch_tests
"$program" --gtest_brief=1 --gtest_filter='ScaleOf*' >"$folder/scale.log" 2>&1 &
scale=$!
# A trap that fails ends the script with 1 under `set -e`, whatever the tests said.
trap 'kill $scale 2>/dev/null || true' EXIT
"$program" --gtest_brief=1 --gtest_filter='NodeLinks*:TraceSignal*'
# Tests of one thread have no race, but take half of the thread sanitizer's time.
one_thread=
[ "$1" != thread ] || one_thread=':SmallKernels.*:*.IsProvedFor*:Plan.*:Reduce.*:*Nvrtc.*'
sh cmake/run_cpp_tests.sh "$program" "-NodeLinks*:TraceSignal*:ScaleOf*$one_thread"
code=0
wait $scale || code=$?
cat "$folder/scale.log"
exit $code
