// SPDX-License-Identifier: BSD-3-Clause
#include "base/random_name.h"

#include <random>

namespace altorch {

std::string random_name(int digits) {
  std::random_device random;
  std::string name;
  for (int i = 0; i < digits; ++i) name += "0123456789abcdef"[random() % 16];
  return name;
}

}  // namespace altorch
