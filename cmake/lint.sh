# Every linter that is installed; a missing one is named and skipped. $1: the build folder (compile_commands.json).
# LINT_ALL=1 runs clang-tidy over all files instead of those that differ from the last commit.
failed=0
run() {
  echo "-- $1"
  shift
  "$@" || failed=1
}
have() {
  command -v "$1" >/dev/null 2>&1 && return 0
  echo "-- $1: skipped, not installed ($2)"
  return 1
}

have ruff "pip install ruff" && run "ruff" ruff check . && run "ruff format" ruff format --check .
have mypy "pip install mypy" && run "mypy" mypy
sources=$(git ls-files 'csrc/*.cpp' 'csrc/*.h' 'tests/cpp/*.cpp' 'tests/cpp/*.h' 'tests/fuzz/*.cpp' 'tests/fuzz/*.h')
# shellcheck disable=SC2086
have clang-format "package clang-format" && run "clang-format" clang-format --dry-run --Werror $sources
if [ -n "$LINT_ALL" ]; then
  tidy=$(git ls-files 'csrc/*.cpp')
else
  tidy=$(git diff --name-only --diff-filter=d HEAD -- 'csrc/*.cpp')
fi
if [ -n "$tidy" ]; then
  # clang reads neither GCC's precompiled header nor all of its warnings' names.
  mkdir -p "$1/tidy"
  sed -E 's/ -Winvalid-pch| -include [^ ]*cmake_pch[^ ]*| -Wno-(restrict|stringop-overflow)//g' \
    "$1/compile_commands.json" >"$1/tidy/compile_commands.json"
  # shellcheck disable=SC2086
  have clang-tidy "package clang-tidy" && run "clang-tidy" clang-tidy --quiet -p "$1/tidy" $tidy
fi
exit $failed
