# SPDX-License-Identifier: BSD-3-Clause
# Makes the environment that `make` works in: torch, the build tools, the tests' and the demo's
# packages. Called by the Makefile with PYTHON, TORCH, VENV, BUILD and USE_SYSTEM.
set -e
tools="cmake>=3.22 ninja setuptools>=77 wheel mpich>=5 rich>=13"
tests="numpy mpi4py>=4.1 scikit-learn pytest>=8 pytest-timeout pytest-xdist>=3.6 expecttest matplotlib>=3.8 plotly>=6,<8"

if [ -n "$USE_SYSTEM" ]; then
  # ensurepip may be missing, and the other environment's pip is visible anyway: hence
  # --without-pip. A path file instead of --system-site-packages: that would pass over PYTHON when
  # it is itself an environment's Python.
  "$PYTHON" -m venv --without-pip "$VENV"
  "$PYTHON" cmake/check_environment.py "$VENV"
  exit 0
fi

[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
install() { "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"; }
echo "1/3 installing torch and the tools into $VENV: a minute from pip's cache, else 3 GB to download"
# shellcheck disable=SC2086
install $tools
# The engine needs no torch, so one core compiles it while pip installs torch. It runs in a process
# group of its own. Its output is dropped, because the build that follows repeats any error.
stop_engine() {
  [ -n "$engine" ] || return 0
  kill -TERM "-$engine" 2>/dev/null || true
  tries=0 # bounded: a zombie that no process reaps stays in the group
  while [ $tries -lt 50 ] && kill -0 "-$engine" 2>/dev/null; do
    sleep 0.1
    tries=$((tries + 1))
  done
}
engine=
trap stop_engine EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
if [ ! -f "$BUILD/build.ninja" ] && command -v setsid >/dev/null 2>&1; then
  PATH="$PWD/$VENV/bin:$PATH" BUILD="$BUILD" setsid nice sh -c 'exec >/dev/null 2>&1
    cmake -S . -B "$BUILD" -G Ninja -DALTORCH_EXTENSION=OFF -DALTORCH_SHIMS=OFF $CMAKE_ARGS &&
      cmake --build "$BUILD" --target altorch_engine --parallel 1' &
  engine=$!
fi
# torch alone: its version decides everything else, and a failure is then easy to read.
install "$TORCH"
# shellcheck disable=SC2086
install $tests
