// SPDX-License-Identifier: BSD-3-Clause
// Under the thread sanitizer memory costs a hundred times as much.
#pragma once

namespace altorch {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kSlowMemory = true;
#else
inline constexpr bool kSlowMemory = false;
#endif

}  // namespace altorch
