// SPDX-License-Identifier: BSD-3-Clause
// Random names that no other process draws.
#pragma once

#include <string>

namespace altorch {

// `digits` hexadecimal digits from the system's random source.
std::string random_name(int digits = 16);

}  // namespace altorch
