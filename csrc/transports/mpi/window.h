// SPDX-License-Identifier: BSD-3-Clause
// Windows by MPI's one-sided communication: one passive epoch to all ranks for as long as the window lives.
//
// MPI_Win_flush blocks until the target has answered, and cannot be given up. So whoever wrote asks first: behind what it wrote
// it raises a count of the target and reads it, which can be tested for as a message can, and flushes when the answer is
// there, and with it, as a rule, all that flush waits for. By the same count the target, which may have to carry it out,
// sees that it is busy with others. Where MPI can do all that there is with
// elements of a type, integers, accumulate, fetch_add and compare_swap are its own; else they all go by messages
// (message_window.h), since what MPI does is not atomic with what others do.
// A signal is a count in a second window, raised when what comes before it has been flushed.
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
  // What it is opened with, by all ranks of `group` together.
  struct Opening {
    MpiGroup& group;
    int number;  // of the window, among those of the group
    std::byte* memory;
    std::span<const Registered> registered;  // of all ranks
    std::unique_ptr<MessageWindow>
        messages;  // of the same memory; null where MPI reduces what all ranks have there
    GroupCreation creation;
  };
  // Why this process cannot, whoever the others are, as a clause, or nothing.
  static std::optional<std::string> unsupported_reason(Mpi& mpi);
  // Why nobody should who has not asked for it, as a clause, or nothing.
  static std::optional<std::string> weakness(const Mpi& mpi);
  // Blocks until all ranks have come: they have met before. Throws Error, also where MPI gives wrong results.
  explicit MpiWindow(Opening opening);
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
  // Whether all is MPI's that is more than a copy, signals among it. Open MPI 4.1 waits inside MPI_Rget_accumulate for the
  // target, without end where that is lost, and crashes where a rank calls MPI_Compare_and_swap on memory of its own
  // (osc/rdma over vader without XPMEM).
  static bool counts(const Mpi& mpi) { return mpi.library().family == MpiFamily::kMpich; }
  // Whether accumulate, fetch_add and compare_swap on such elements are MPI's.
  static bool reduces(const Mpi& mpi, DType dtype);

 private:
  // What a rank lets another count in: MPI's memory as long as the windows are.
  struct alignas(64) Desk {
    std::array<std::int64_t, kSignalSlots> signals;
    std::int64_t left, test;
    std::int64_t asked;  // of the first: how often anybody has asked this rank
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
  std::int64_t seen_ = 0;  // of what was asked
};

}  // namespace altorch
