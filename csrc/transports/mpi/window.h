// SPDX-License-Identifier: BSD-3-Clause
// Windows over MPI's one-sided communication: one passive-target epoch to all ranks for as long as
// the window lives.
//
// MPI_Win_flush blocks until the target has answered, and cannot be aborted. So a rank that wrote
// asks first: after its data it reads from the target, with a request that it can test like a
// message. When the answer has arrived it flushes; as a rule all that the flush waits for has
// arrived with it. If counts(), the request also raises a count of the target. The target may have
// to carry out the access, and sees by that count that it is busy with its peers.
//
// Accumulate, fetch_add and compare_swap are MPI's own for types that MPI handles completely, which
// are integers (reduces()). For other types all of them go by messages (message_window.h), because
// MPI's operations are not atomic with those of messages.
//
// A signal is a count in a second window, raised when everything before it has been flushed. If not
// counts(), it is a message.
//
// Thread rules: as RemoteMemory.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "transports/message_window.h"
#include "transports/mpi/mpi.h"
#include "transports/window.h"

namespace altorch {

class MpiWindow : public RemoteMemory {
 public:
  // Blocks until all ranks have come: they have met before. Throws Error, also where MPI gives
  // wrong results.
  MpiWindow(MpiGroup& group, NativeWindows::Opening opening);
  ~MpiWindow() override;

  const char* name() const override { return "mpi"; }
  State begin(WindowCall& call, std::optional<Error>& error) override;
  State test(WindowCall& call, std::optional<Error>& error) override;
  bool cancel(WindowCall& call) override;
  std::uint64_t signals(int source, int slot) const override;
  bool has_left(int rank) const override;
  bool is_served() const override { return true; }
  bool serve() override;
  bool close(bool agreed) override;
  // Whether MPI itself carries everything that is more than a copy, signals among it. Open MPI 4.1
  // waits inside MPI_Rget_accumulate for the target, without end if that is lost. It crashes if a
  // rank calls MPI_Compare_and_swap on its own memory (osc/rdma over vader without XPMEM).
  static bool counts(const Mpi& mpi) { return mpi.library().family == MpiFamily::kMpich; }
  // Whether MPI itself carries accumulate, fetch_add and compare_swap on elements of this type.
  static bool reduces(const Mpi& mpi, DType dtype);

 private:
  // The counts of a rank that one other rank may raise. MPI uses this memory as long as the windows
  // exist.
  struct alignas(64) Desk {
    std::array<std::int64_t, kSignalSlots> signals;
    std::int64_t left, test;
    std::int64_t asked;  // in the first desk only: how often all ranks have asked this one
  };
  struct Handles;
  struct Doing;

  void open(const GroupCreation& creation);
  void try_out(std::span<const Registered> registered, const GroupCreation& creation);
  std::size_t place_of(int slot) const;
  const AltorchMpiTable& table() const { return mpi_->table(); }
  State start(WindowCall& call, Doing& doing, std::optional<Error>& error);
  State move_on(WindowCall& call, Doing& doing, std::optional<Error>& error);
  State signal_by_message(WindowCall& call, Doing& doing, std::optional<Error>& error);
  State look(Doing& doing, std::optional<Error>& error);
  void begin_data(WindowCall& call, Doing& doing);
  void begin_signal(const WindowCall& call, Doing& doing);
  bool ask(const WindowCall& call, Doing& doing);
  void sync() const;
  void take_leave();

  const std::shared_ptr<Mpi> mpi_;
  const int rank_, size_;
  const bool counts_;  // whether signals are counted by MPI; else by messages
  const std::unique_ptr<MessageWindow> messages_;
  std::shared_ptr<Handles> handles_;
  mutable std::mutex mutex_;  // guards the handles, and what follows
  bool closed_ = false, free_ = false;
  std::int64_t seen_ = 0;  // the last `asked` that serve() has seen
};

}  // namespace altorch
