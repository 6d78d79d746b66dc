// SPDX-License-Identifier: BSD-3-Clause
// Prints the source of the kernels that nvcc compiles ahead: see Kernels.cmake.
#include <iostream>

#include "device/kernels/names.h"

int main() {
  std::cout << altorch::kernel_source();
  for (const altorch::Kernel& kernel : altorch::kernels_ahead()) std::cout << kernel.definition;
}
