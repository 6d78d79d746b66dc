// SPDX-License-Identifier: BSD-3-Clause
// MPI in this process: initialised once, never again, finalised at exit.
//
// MPI outlives process groups: destroy_process_group followed by init_process_group uses the same
// Mpi. Thread rules: every method may be called from any thread unless thread_level() is kSingle;
// MPI calls of one process are serialised by lock() unless MPI itself is thread safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/peer_deaths.h"
#include "transports/links.h"
#include "transports/mpi/library.h"
#include "transports/mpi/serial_lock.h"

namespace altorch {

enum class MpiThreadLevel { kSingle, kFunneled, kSerialized, kMultiple };

constexpr const char* name_of(MpiThreadLevel level) {
  constexpr const char* names[] = {"single", "funneled", "serialized", "multiple"};
  return names[static_cast<int>(level)];
}

// What called MPI_Init, and what gave it its ranks.
enum class MpiOrigin {
  kBootstrap,  // altorch, in processes that no MPI launcher knows
  kLauncher,   // altorch, under mpirun or srun
  kExisting,   // other code in this process, such as mpi4py
};

constexpr const char* name_of(MpiOrigin origin) {
  constexpr const char* names[] = {"altorch's own bootstrap", "an MPI launcher",
                                   "another user of MPI in this process"};
  return names[static_cast<int>(origin)];
}

class Mpi;
class NativeThread;

// One communicator: its channel and MPI's own collectives on it. Keep the Mpi alive; no request may
// be in flight when the group is destroyed, unless it is marked broken.
class MpiGroup : public Links, public NativeWindows {
 public:
  // `world_ranks`: its members, as MPI numbers them.
  MpiGroup(std::shared_ptr<Mpi> mpi, std::intptr_t communicator, int rank, std::vector<int> world_ranks,
           PeerDeaths deaths);
  ~MpiGroup() override;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  const char* transport() const override { return "mpi"; }
  Channel& channel() override { return *channel_; }
  std::vector<NativeCollectives*> collectives() override { return {collectives_.get()}; }
  NativeWindows* native_windows() override { return this; }
  std::optional<std::string> windows_unsupported_reason() override;
  std::optional<std::string> windows_weakness() const override;
  bool windows_reduce(DType dtype) const override;
  std::unique_ptr<RemoteMemory> open_window(NativeWindows::Opening opening) override;
  Mpi& owner() { return *mpi_; }
  std::intptr_t communicator() const { return communicator_; }
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  // Called after an error. The communicator is not freed, because MPI_Comm_free could wait for a
  // dead peer, and MPI is not finalised at exit.
  void mark_broken() override;
  // Leaks the communicator, because MPICH 5 aborts in MPI_Comm_free while a large message waits in
  // it. A process can leak about 2000 of them.
  void mark_tainted() override { tainted_ = true; }

 private:
  std::shared_ptr<Mpi> mpi_;
  std::intptr_t communicator_;
  const std::vector<int> world_ranks_;
  std::atomic<bool> broken_ = false, tainted_ = false;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<NativeCollectives> collectives_;
};

// Options for making a group.
struct GroupCreation {
  std::string name;  // for messages
  std::chrono::milliseconds timeout{120000};
  // Called about every 100 ms while a rank waits for its peers. Throws Error if one of them is
  // lost.
  std::function<void()> check_peers = [] {};
  PeerDeaths deaths = {};
  std::string what = {};  // for messages, where it is not "the creation": "the opening of window 3"
};

class Mpi : public std::enable_shared_from_this<Mpi> {
 public:
  // Calls MPI_Init_thread, or takes MPI as it is when it is already initialised (`origin` is then
  // kExisting whatever is asked). `wanted`: kSingle, kSerialized or kMultiple. Throws
  // Error(kUnsupported or kTransport). Called by bootstrap/ only, under its lock.
  static std::shared_ptr<Mpi> initialise(const MpiLibrary& library, MpiThreadLevel wanted, MpiOrigin origin);

  const MpiLibrary& library() const { return library_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  MpiOrigin origin() const { return origin_; }
  MpiThreadLevel thread_level() const { return thread_level_; }  // what MPI provides
  std::int64_t max_tag() const { return max_tag_; }

  // Index of the node of each rank of the world; ranks with the same index share memory. Set by
  // bootstrap/.
  const std::vector<int>& node_of_rank() const { return node_of_rank_; }
  void set_node_of_rank(std::vector<int> nodes);
  bool has_several_nodes() const { return has_several_nodes_; }

  // Blocking: every rank of `world_ranks` must be about to make the same call, with the same tag
  // (0..32767), so call it only after its members have met (in the Store, say). The order of
  // `world_ranks` is the order of the new ranks; this process must be one of them. Throws
  // Error(kTransport), Error(kTimeout) and what creation.check_peers() throws. After these last two
  // errors MPI is left alone at exit. If a thread was still inside MPI then, which cannot be
  // interrupted, MPI is not usable any more.
  std::unique_ptr<MpiGroup> create_group(std::span<const int> world_ranks, std::int64_t tag,
                                         const GroupCreation& creation = {});

  // Calls `body`, which blocks in MPI until all members of a group have come to it, and owns what
  // it uses. Throws as create_group() does.
  void run_collective(const std::function<void()>& body, const GroupCreation& creation);

  // A barrier over all ranks that ends after `timeout`: false if a rank has not come by then.
  bool barrier(std::chrono::milliseconds timeout);
  // All ranks' texts (at most 1 MiB each), in rank order; a collective over the world. Throws
  // Error(kTimeout) after ALTORCH_BOOTSTRAP_SECONDS.
  std::vector<std::string> exchange(const std::string& text);

  // Finalises MPI if this process initialised it, no group was broken, and this is not a forked
  // child. Under altorch's own bootstrap it does not wait longer than `timeout` for a peer, and on
  // several nodes MPICH is left to the end of the process (mpi.cpp says why). Safe to call twice.
  void finalize(std::chrono::milliseconds timeout);
  // To be called right before MPI_Finalize, if it comes to that.
  void before_finalize(std::function<void()> action) { before_finalize_ = std::move(action); }
  // Something failed: leave MPI alone at exit.
  void mark_broken() { broken_ = true; }
  // False once MPI is finalised or held up, and in forked children: then no MPI call may be made.
  bool usable() const;
  // Why it is not usable.
  Error not_usable() const;

  SerialLock& lock() { return lock_; }
  const AltorchMpiTable& table() const { return *library_.table; }
  // Waits until the request is done. Throws as create_group() does; the memory that the request
  // reads and writes must stay then.
  void wait(std::intptr_t request, const char* function, const GroupCreation& creation);
  // What MPI says about an error code, as a clause: "MPI_Isend failed: ...".
  std::string describe(const char* function, int error) const;

 private:
  Mpi(MpiLibrary library, MpiOrigin origin);
  void check(const char* function, int error) const;
  std::intptr_t copy_world(const GroupCreation& creation);
  std::intptr_t create_part(std::span<const int> world_ranks, int tag, const GroupCreation& creation);
  void wait_for_part(NativeThread creating, const GroupCreation& creation);
  void hold_up(const std::string& why);
  bool leave_together(std::chrono::milliseconds timeout);

  MpiLibrary library_;
  MpiOrigin origin_;
  MpiThreadLevel thread_level_ = MpiThreadLevel::kSingle;
  int rank_ = 0;
  int size_ = 1;
  int process_id_;
  std::int64_t max_tag_ = 32767;
  std::intptr_t world_ = 0;
  std::vector<int> node_of_rank_;
  SerialLock lock_;
  bool has_several_nodes_ = false;
  bool calls_from_any_thread_ = true;
  std::atomic<bool> broken_ = false;
  std::atomic<bool> finalized_ = false;
  std::atomic<const Error*> held_up_ = nullptr;  // set once, never freed
  std::function<void()> before_finalize_;
};

}  // namespace altorch
