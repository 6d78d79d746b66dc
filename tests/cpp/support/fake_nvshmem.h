// SPDX-License-Identifier: BSD-3-Clause
// An NVSHMEM for ranks that are threads of one process, on streams of the fake device. A put
// arrives when a later quiet of its rank runs, and not before. Memory that was registered has a
// second address, at which nothing can be read. It notes down what would end the process, or is
// undefined; and it can be told to fail, to hang, and to reach no memory that is not registered.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu/nvshmem/world.h"

namespace altorch {

namespace fake_nvshmem {
struct State;
}

// One at a time. Thread rules: any thread, but for the constructor and the destructor.
class FakeNvshmem {
 public:
  // `granularity`: of memory that can be registered. `maps`: the ranks map each other's memory.
  explicit FakeNvshmem(int ranks, std::size_t granularity = 1, bool maps = true);
  // Ends what still hangs.
  ~FakeNvshmem();
  FakeNvshmem(const FakeNvshmem&) = delete;

  // The calling thread's process, from now on, is this one of NVSHMEM's.
  void enter(int process);
  // The next call of that name by that process fails, or hangs until the end.
  void fail(const std::string& name, int process);
  void hang(const std::string& name, int process);
  // Other code has initialized NVSHMEM there.
  void initialize_elsewhere(int process);

  int calls(const std::string& name) const;
  // Of all words of that process, without what a window writes to let its streams go on.
  std::uint64_t signals(int process) const;
  std::vector<std::string> misuse() const;

 private:
  const std::shared_ptr<fake_nvshmem::State> state_;
  std::vector<std::unique_ptr<nvshmem::NvshmemWorld>> worlds_;
};

}  // namespace altorch
