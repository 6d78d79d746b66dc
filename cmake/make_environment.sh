# Makes the environment that `make` works in: torch, the build tools, the tests' and the demo's packages.
# Called by the Makefile with PYTHON, TORCH, VENV and USE_SYSTEM.
set -e
tools="cmake>=3.22 ninja setuptools>=70 wheel mpich>=5 rich>=13"
tests="numpy scikit-learn pytest>=8 pytest-timeout expecttest matplotlib>=3.8"

if [ -n "$USE_SYSTEM" ]; then
  # ensurepip may be missing, and the other environment's pip is visible anyway: hence --without-pip. A path file
  # instead of --system-site-packages: that would pass over PYTHON when it is itself an environment's Python.
  "$PYTHON" -m venv --without-pip "$VENV"
  "$PYTHON" cmake/check_environment.py "$VENV"
  exit 0
fi

[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
echo "Installing torch and the tools into $VENV (several GB the first time) ..."
# torch first and alone: its version decides everything else, and a failure is then easy to read.
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$TORCH"
# shellcheck disable=SC2086
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check $tools $tests
