// SPDX-License-Identifier: BSD-3-Clause
#include "reduction/kernel_table.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

namespace altorch::reduction {

namespace baseline {
extern const KernelTable kTable;
}
#if defined(__x86_64__) && defined(__GNUC__)
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}
#endif

namespace {

#if defined(__x86_64__) && defined(__GNUC__)
// Asked of the CPU directly: __builtin_cpu_supports knows this feature from GCC 11 on only, and not
// in clang 14.
bool has_f16c() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

struct UsableTables {
  std::array<const KernelTable*, 3> tables{};
  std::size_t count = 0;

  UsableTables() {
    tables[count++] = &baseline::kTable;
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !has_f16c()) return;
    tables[count++] = &avx2::kTable;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      tables[count++] = &avx512::kTable;
    }
#endif
  }
};

const UsableTables& usable_tables() {
  static const UsableTables usable;
  return usable;
}

}  // namespace

std::span<const KernelTable* const> usable_kernel_tables() {
  const UsableTables& usable = usable_tables();
  return {usable.tables.data(), usable.count};
}

const KernelTable& kernel_table() {
  static const KernelTable& best = *usable_kernel_tables().back();
  return best;
}

}  // namespace altorch::reduction
