# SPDX-License-Identifier: BSD-3-Clause
# Every linter that is installed; a missing one is named and skipped. $1: the build folder
# (compile_commands.json). LINT_CHANGED=1 looks only at files that differ from the last commit;
# LINT_ALL=1 runs clang-tidy over all files, too.
failed=0
git rev-parse --is-inside-work-tree >/dev/null || { echo "lint: this is no git checkout" >&2 && exit 1; }
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

# The files of these patterns: all that git knows, or with LINT_CHANGED=1 those that differ from the
# last commit.
files_of() {
  if [ -n "$LINT_CHANGED" ]; then
    { git diff --name-only --diff-filter=d HEAD -- "$@"; git ls-files --others --exclude-standard -- "$@"; } | sort -u
  else
    git ls-files --cached --others --exclude-standard -- "$@"
  fi
}
python=$(files_of '*.py' '*.pyi')
sources=$(files_of 'csrc/*.cpp' 'csrc/*.h' 'tests/cpp/*.cpp' 'tests/cpp/*.h' 'tests/fuzz/*.cpp' 'tests/fuzz/*.h' 'tests/locks/*.cpp')
# shellcheck disable=SC2086
[ -z "$python" ] || { have ruff "pip install ruff" && run "ruff" ruff check $python && run "ruff format" ruff format --check $python; }
typed=$(files_of 'python/*.py' 'python/*.pyi')
[ -z "$typed" ] || { have mypy "pip install mypy" && run "mypy" mypy; }
# shellcheck disable=SC2086
[ -z "$sources" ] || { have clang-format "package clang-format" && run "clang-format" clang-format --dry-run --Werror $sources; }
if [ -n "$LINT_ALL" ]; then
  tidy=$(git ls-files 'csrc/*.cpp')
else
  tidy=$(git diff --name-only --diff-filter=d HEAD -- 'csrc/*.cpp')
fi
if [ -n "$tidy" ] && have clang-tidy "package clang-tidy"; then
  # A database with an entry for each file, without precompiled headers: clang reads none of GCC's.
  cmake -S . -B "$1/tidy" -G Ninja "-DPython_EXECUTABLE=$(command -v python)" "-DALTORCH_PACKAGE_DIR=$PWD/$1/tidy/package" \
    -DALTORCH_UNITY=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DALTORCH_AHEAD=OFF >/dev/null || failed=1
  sed -i -E 's/ -Wno-(restrict|stringop-overflow|stringop-overread)| -fpch-preprocess//g' "$1/tidy/compile_commands.json"
  # shellcheck disable=SC2086
  run "clang-tidy" clang-tidy --quiet -p "$1/tidy" $tidy
fi
exit $failed
