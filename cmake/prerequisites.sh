# SPDX-License-Identifier: BSD-3-Clause
# Says, in one sentence per missing thing, which package to install before altorch can be built.
# Exit code 1 if any.
python="${PYTHON:-python3}"
missing=0
complain() {
  echo "altorch: $1" >&2
  missing=1
}

if ! command -v "$python" >/dev/null 2>&1; then
  complain "$python was not found: install Python 3.10 or newer (package python3), or name one with PYTHON=..."
  exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  complain "$python is $("$python" -V 2>&1), and altorch needs Python 3.10 or newer: install it and name it with PYTHON=..."
  exit 1
fi
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ -z "$USE_SYSTEM" ] && ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
  complain "Python's venv module is missing: install the package python3-venv (or python$version-venv)."
fi
if ! "$python" -c 'import os, sys, sysconfig; p = sysconfig.get_path("include"); sys.exit(not os.path.exists(os.path.join(p, "Python.h")))'; then
  complain "Python's headers (Python.h) are missing: install the package python3-dev (or python$version-dev)."
fi
compiler="${CXX:-c++}"
if ! command -v "$compiler" >/dev/null 2>&1; then
  complain "no C++ compiler was found ($compiler): install the package g++ (version 11 or newer)."
elif ! printf '#include <concepts>\n#include <span>\nint main() { return 0; }\n' | "$compiler" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
  complain "$compiler is no C++20 compiler: install g++ 11 or newer (package g++) and name it with CXX=..."
fi
compiler="${CC:-cc}"
if ! command -v "$compiler" >/dev/null 2>&1; then
  complain "no C compiler was found ($compiler): install the package gcc."
fi
exit $missing
