# SPDX-License-Identifier: BSD-3-Clause
# Builds the C++ tests for 64-bit Arm and runs them in an emulator. $1: which, as --gtest_filter
# takes it. The emulator says whether the code is right there, not whether it needs less order than
# it has: on x86 it keeps x86's.
missing=
command -v aarch64-linux-gnu-g++ >/dev/null 2>&1 || missing=g++-aarch64-linux-gnu
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || missing="$missing qemu-user-static"
if [ -n "$missing" ]; then
  echo "make test-aarch64: skipped, no cross compiler or no emulator here (apt install" $missing")"
  exit 0
fi
set -e
folder=build/aarch64
cmake -S . -B "$folder" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" \
  -DALTORCH_EXTENSION=OFF -DALTORCH_SHIMS=OFF
cmake --build "$folder" --target altorch_tests
"$emulator" -L /usr/aarch64-linux-gnu "$folder/tests/cpp/altorch_tests" --gtest_brief=1 --gtest_filter="$1"
