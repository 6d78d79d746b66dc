// SPDX-License-Identifier: BSD-3-Clause
#include "device/compiled_ahead.h"

#ifdef ALTORCH_AHEAD
asm(".pushsection .rodata\n"
    ".balign 16\n"
    "altorch_ahead_begin:\n"
    ".incbin \"" ALTORCH_AHEAD
    "\"\n"
    "altorch_ahead_end:\n"
    ".popsection\n");
extern "C" {
[[gnu::visibility("hidden")]] extern const std::byte altorch_ahead_begin[], altorch_ahead_end[];
}
#endif

namespace altorch {

std::span<const std::byte> kernels_compiled_ahead() {
#ifdef ALTORCH_AHEAD
  return {altorch_ahead_begin, altorch_ahead_end};
#else
  return {};
#endif
}

}  // namespace altorch
