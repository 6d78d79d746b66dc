// SPDX-License-Identifier: BSD-3-Clause
// Memory that NCCL's fastest paths want, for torch.cuda.MemPool: called by torch, which finds these
// two by name (python/altorch/_nccl.py).
#include <cstddef>

#include "gpu/nccl/library.h"

#define ALTORCH_EXPORTED extern "C" __attribute__((visibility("default")))

// Null when there is no memory left.
ALTORCH_EXPORTED void* altorch_nccl_allocate(std::size_t bytes, int device, void* /*stream*/) {
  const altorch::nccl::Table& nccl = altorch::nccl::library().table;
  void* memory = nullptr;
  nccl.set_device(device);
  return nccl.allocate(&memory, bytes) == altorch::nccl::kSuccess ? memory : nullptr;
}

ALTORCH_EXPORTED void altorch_nccl_free(void* memory, std::size_t /*bytes*/, int device, void* /*stream*/) {
  const altorch::nccl::Table& nccl = altorch::nccl::library().table;
  nccl.set_device(device);
  nccl.release(memory);
}
