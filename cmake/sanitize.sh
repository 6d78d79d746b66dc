# Builds the C++ tests under a sanitizer and runs them. $1: address, thread, undefined or address,undefined.
# A machine on which sanitized programs cannot run (no ptrace for the search for leaks, an unusual memory layout) is told
# by a program that does nothing, and skipped with its words.
set -e
folder=build/$1
mkdir -p "$folder"
echo 'int main() { return 0; }' >"$folder/probe.cpp"
if ! said=$("${CXX:-c++}" "-fsanitize=$1" "$folder/probe.cpp" -o "$folder/probe" 2>&1 && "$folder/probe" 2>&1); then
  echo "make sanitize: skipped, programs under the $1 sanitizer do not run here:"
  echo "$said" | head -n 5
  exit 0
fi
# shellcheck disable=SC2086
cmake -S . -B "$folder" -G Ninja "-DALTORCH_SANITIZE=$1" $CMAKE_ARGS
cmake --build "$folder" --target altorch_tests
# Some tests fork their peers: those start threads, which ThreadSanitizer must be told to allow. Those run in a process of
# their own, without other threads: AddressSanitizer's allocator may be locked for ever
# in a child forked beside one.
export TSAN_OPTIONS="die_after_fork=0 ${TSAN_OPTIONS:-}"
# Of their own, too, are those whose ranks are stacks that one thread changes between: AddressSanitizer takes other tests'
# stacks for wrong afterwards.
for tests in 'HomeLinks*:TraceSignal*' 'ScaleOf*'; do
  "$folder/tests/cpp/altorch_tests" --gtest_brief=1 --gtest_filter="$tests"
done
sh cmake/run_cpp_tests.sh "$folder/tests/cpp/altorch_tests" '-HomeLinks*:TraceSignal*:ScaleOf*'
