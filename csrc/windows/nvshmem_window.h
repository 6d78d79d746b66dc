// SPDX-License-Identifier: BSD-3-Clause
// Windows over NVSHMEM, which puts, gets, signals and waits on a stream, and reaches the GPUs of
// other nodes without the hosts. All else goes by messages between the hosts (relayed_window.h), on
// the same streams.
//
// A call has taken effect when its stream is past it, as in RelayedWindow. So nvshmemx_quiet
// follows each put, and calls of both kinds keep their order on a stream.
//
// Each rank has one signal object for each slot of each peer. The peer adds 1 to it for a signal.
// This rank counts its waits, and a stream waits until the object has reached that count. end()
// stores a larger value in all of this rank's objects, on the serving stream, which no call blocks.
//
// After an abort, streams pass relayed calls that have no answer. A signal behind such a call must
// not be sent. So while relayed calls are in flight, a kernel that checks the abort flag sends the
// signals, to GPUs that this one maps. Over a network NVSHMEM sends them in any case.
//
// Thread rules: those of DeviceWindow.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "gpu/nvshmem/world.h"
#include "windows/relayed_window.h"
#include "windows/row.h"

namespace altorch {

class NvshmemWindow : public RelayedWindow {
 public:
  // The window's memory and signals, as NVSHMEM addresses them.
  struct Symmetric {
    nvshmem::NvshmemWorld* world = nullptr;
    std::byte* allocation = nullptr;      // of this rank, which its tensor lies in
    std::byte* memory = nullptr;          // its symmetric address
    std::vector<std::size_t> offsets;     // by rank: of its tensor in its allocation
    std::uint64_t* signals = nullptr;     // of this rank, signal_words()
    std::vector<std::uint64_t*> words;    // by rank: the symmetric address of its first signal
    std::vector<std::string> no_atomics;  // as of DeviceWindow
  };
  static std::size_t signal_words(int ranks) { return static_cast<std::size_t>(ranks) * kSignalSlots; }

  using RelayedWindow::RelayedWindow;
  // Before the first call.
  void set_symmetric(Symmetric symmetric);

  const char* name() const override { return "nvshmem"; }
  State begin(WindowCall& call, std::optional<Error>& error) override;
  State test(WindowCall& call, std::optional<Error>& error) override;
  void wait(const WindowCall& call) override;
  void end() override;
  bool close(bool agreed) override;

 private:
  void try_out(const nvshmem::Table& nvshmem) const;
  // Whether NVSHMEM can move the data.
  bool carries(const WindowCall& call) const;
  // Whether streams may still wait for an answer of that rank.
  bool is_relaying(int rank) const;
  // A request slot of this rank to itself, which no call uses; streams and the host share it.
  StagedBoard::Request& own_request(std::uint32_t number) const;
  // These need mutex_.
  void move(const WindowCall& call);
  void signal(const WindowCall& call);
  // Has RelayedWindow carry the call, with the signal behind it.
  template <class Act>
  State relay(WindowCall& call, const Act& act);

  Symmetric symmetric_;
  // By rank: its words as kernels of this rank reach them. Null: NVSHMEM reaches it by a network.
  std::vector<std::uint64_t*> mapped_;
  // Guarded by mutex_.
  std::vector<std::uint64_t> awaited_;                                   // by place
  std::vector<std::array<std::uint32_t, StagedBoard::kLanes>> relayed_;  // by rank: the last requests
};

// As WindowRow::open.
std::unique_ptr<RemoteMemory> open_nvshmem_window(const WindowOpening& opening,
                                                  std::string& unsupported_reason);
// Why this process cannot open such windows, as a clause; empty: it can.
std::string nvshmem_window_unsupported_reason(const GpuSource& gpus, int device);

}  // namespace altorch
