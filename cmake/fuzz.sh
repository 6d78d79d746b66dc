# SPDX-License-Identifier: BSD-3-Clause
# Runs each fuzz target for $1 seconds and prints what came of it as a table: the parsers in Python,
# and the programs of libFuzzer, which it builds with clang. $2: which of those, all where it is
# empty. What breaks a target stays in build/fuzz/findings; what teaches it anything in
# build/fuzz/corpus.
folder=build/fuzz
mkdir -p "$folder/findings"
failed=0
if [ -z "$2" ]; then
  python -m tests.fuzz.python_parsers --seconds "$1" || failed=1
fi
compiler=${CXX:-clang++}
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$folder/probe.cpp"
if ! said=$("$compiler" -fsanitize=fuzzer,address,undefined "$folder/probe.cpp" -o "$folder/probe" 2>&1 &&
  "$folder/probe" -runs=1 2>&1); then
  echo "make fuzz: skipped, programs of libFuzzer do not run here (packages clang and libclang-rt-dev; CXX names another):"
  echo "$said" | head -n 5
  exit $failed
fi
targets=${2:-$(cd tests/fuzz && ls ./*_fuzz.cpp | sed 's|./||; s|_fuzz.cpp||')}
programs=$(for target in $targets; do echo "${target}_fuzz"; done)
set -e
CXX=$compiler CC=${CC:-clang} cmake -S . -B "$folder" -G Ninja -DALTORCH_FUZZ=ON >"$folder/cmake.log"
# shellcheck disable=SC2086
cmake --build "$folder" --target $programs
set +e
export ASAN_OPTIONS="quarantine_size_mb=32:${ASAN_OPTIONS:-}" UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
printf '%-16s %8s %12s %9s\n' target seconds executions findings
for target in $targets; do
  mkdir -p "$folder/corpus/$target"
  began=$(date +%s)
  "$folder/tests/fuzz/${target}_fuzz" "$folder/corpus/$target" "tests/fuzz/corpus/$target" -max_total_time="$1" \
    -timeout=5 -rss_limit_mb=512 -malloc_limit_mb=256 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="$folder/findings/$target-" >"$folder/$target.log" 2>&1
  found=$(($? != 0))
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$target.log")
  printf '%-16s %8s %12s %9s\n' "$target" $(($(date +%s) - began)) "${executions:-?}" "$found"
  [ "$found" = 0 ] || { failed=1 && grep -m 1 -E 'ERROR|runtime error|what\(\)' "$folder/$target.log"; }
done
exit $failed
