// SPDX-License-Identifier: BSD-3-Clause
// An NCCL for ranks that are threads of one process, on streams of the fake device: what
// nccl::library() gives while it lives. Host calls enqueue and return; the streams wait for the
// other ranks, as NCCL's kernels do, and compute what its documentation says
// (fake_nccl_numbers.cpp). It notes down whatever its user does that the documentation forbids, and
// can be told to fail, to hang, and to lack what newer versions have.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu/nccl/library.h"

namespace altorch {

namespace fake_nccl {
struct State;
}

// One at a time. Thread rules: any thread, but for the constructor and the destructor.
class FakeNccl {
 public:
  static constexpr int kAnyRank = -1;

  // 22809 is 2.28.9.
  explicit FakeNccl(int version = 22809);
  // Ends what still hangs, and returns when no thread is in a call.
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  // The next call of this name ("ncclSend") by that rank fails.
  void fail(const std::string& name, int rank = kAnyRank);
  // It comes back when its communicator is aborted, or with end() where it has none.
  void hang(const std::string& name, int rank = kAnyRank);
  // The rank's communicators say from now on that something went wrong by itself.
  void report_error(int rank);
  // For calling thread: there is no NCCL.
  static void hide_from_this_thread(bool hidden);

  // How often the call has been made, by all ranks.
  int calls(const std::string& name) const;
  // What a communicator says that it has on the GPU, the first also while it is suspended.
  static constexpr std::uint64_t kSuspendable = 5 << 20, kPersistent = 1 << 20;
  // Made, and not yet destroyed or aborted.
  int open_communicators() const;
  // What communicators were made with last.
  nccl::Config last_config() const;
  // What the documentation forbids, in order. Empty: all was well.
  std::vector<std::string> misuse() const;
  // Everything that hangs comes back, on the host and in streams.
  void end();

 private:
  fake_nccl::State* const state_;  // never freed: a call that was left behind may come back late
};

}  // namespace altorch
