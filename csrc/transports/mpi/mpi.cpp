// SPDX-License-Identifier: BSD-3-Clause
#include "transports/mpi/mpi.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>

#include "base/adaptive_wait.h"
#include "base/log.h"
#include "platform/native_thread.h"
#include "transports/mpi/channel.h"
#include "transports/mpi/collectives.h"
#include "transports/mpi/mpi_entry.h"

namespace altorch {
namespace {

constexpr int kFarewellLooks = 16;

// Set in forked children: they share the parent's MPI memory and sockets and must leave them alone.
std::atomic<bool> is_forked_child{false};

void watch_for_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { is_forked_child = true; }); });
}

AltorchMpiThread to_table(MpiThreadLevel level) { return static_cast<AltorchMpiThread>(level); }

}  // namespace

MpiGroup::MpiGroup(std::shared_ptr<Mpi> mpi, std::intptr_t communicator, int rank,
                   std::vector<int> world_ranks, PeerDeaths deaths)
    : mpi_(std::move(mpi)),
      communicator_(communicator),
      world_ranks_(std::move(world_ranks)),
      channel_(std::make_unique<MpiChannel>(*mpi_, communicator, rank, static_cast<int>(world_ranks_.size()),
                                            std::move(deaths))),
      collectives_(std::make_unique<MpiCollectives>(*mpi_, communicator, *channel_)) {}

MpiGroup::~MpiGroup() {
  if (broken_ || tainted_) return;
  const MpiEntry entry(*mpi_);
  if (!entry) return;
  // MPICH 5 aborts in MPI_Comm_free if a large message was not received, so the communicator is
  // leaked then. One probe is not enough: the message may have arrived before MPI has looked at it.
  for (int look = 0; look < kFarewellLooks; ++look) {
    int unreceived = 0, source = 0;
    if (mpi_->table().iprobe_any(-1, communicator_, &unreceived, &source) != 0 || unreceived != 0) return;
  }
  mpi_->table().comm_free(&communicator_);
}

void MpiGroup::mark_broken() {
  broken_ = true;
  mpi_->mark_broken();
}

Mpi::Mpi(MpiLibrary library, MpiOrigin origin)
    : library_(std::move(library)), origin_(origin), process_id_(getpid()) {}

std::shared_ptr<Mpi> Mpi::initialise(const MpiLibrary& library, MpiThreadLevel wanted, MpiOrigin origin) {
  const AltorchMpiTable& table = *library.table;
  int flag = 0;
  table.finalized(&flag);
  if (flag) {
    throw Error(ErrorKind::kUnsupported,
                "MPI was already finalised in this process, and it cannot be initialised again.");
  }
  table.initialized(&flag);
  std::shared_ptr<Mpi> mpi(new Mpi(library, flag ? MpiOrigin::kExisting : origin));
  int provided = 0;
  if (flag) {
    mpi->check("MPI_Query_thread", table.query_thread(&provided));
  } else {
    mpi->check("MPI_Init_thread", table.init_thread(to_table(wanted), &provided));
  }
  watch_for_forks();
  mpi->thread_level_ = static_cast<MpiThreadLevel>(provided);
  mpi->calls_from_any_thread_ = wanted != MpiThreadLevel::kSingle;
  mpi->lock_.enable(provided != ALTORCH_MPI_THREAD_MULTIPLE && wanted != MpiThreadLevel::kSingle);
  mpi->world_ = table.comm_world();
  if (!flag) table.return_errors(mpi->world_);
  mpi->check("MPI_Comm_rank", table.comm_rank(mpi->world_, &mpi->rank_));
  mpi->check("MPI_Comm_size", table.comm_size(mpi->world_, &mpi->size_));
  table.tag_upper_bound(&mpi->max_tag_);
  return mpi;
}

void Mpi::set_node_of_rank(std::vector<int> nodes) {
  node_of_rank_ = std::move(nodes);
  has_several_nodes_ =
      std::any_of(node_of_rank_.begin(), node_of_rank_.end(), [](int node) { return node != 0; });
}

bool Mpi::barrier(std::chrono::milliseconds timeout) {
  const auto deadline = AdaptiveWait::Clock::now() + timeout;
  std::intptr_t request = 0;
  {
    const MpiEntry entry(*this);
    entry.or_throw();
    check("MPI_Ibarrier", table().ibarrier(world_, &request));
  }
  AdaptiveWait pause;
  while (true) {
    AltorchMpiTest result = {};
    {
      const MpiEntry entry(*this);
      entry.or_throw();
      check("MPI_Test", table().test(&request, &result));
    }
    if (result.done) return true;
    if (AdaptiveWait::Clock::now() > deadline) return false;
    pause.pause();
  }
}

void Mpi::finalize(std::chrono::milliseconds timeout) {
  if (origin_ == MpiOrigin::kExisting || broken_ || !usable()) return;
  if (origin_ == MpiOrigin::kBootstrap && !leave_together(timeout)) return;
  {
    const MpiEntry entry(*this);
    if (!entry) return;
    finalized_ = true;  // no thread enters MPI any more
  }
  // MPICH over UCX needs a barrier of its process manager inside MPI_Finalize, or the first rank to
  // leave resets the connections of those that still flush them, and these abort. At exit we can
  // offer none, for the store may be gone; so MPI is left to the end of the process.
  if (origin_ == MpiOrigin::kBootstrap && has_several_nodes_ && library_.family != MpiFamily::kOpenMpi)
    return;
  const auto end = [self = shared_from_this()] {
    if (self->before_finalize_) self->before_finalize_();
    self->table().finalize();
  };
  if (origin_ != MpiOrigin::kBootstrap || !calls_from_any_thread_) return end();
  try {
    if (!NativeThread("al-mpi-end", end).ends_within(timeout))
      log(LogLevel::kInfo, "MPI_Finalize waits for a rank that has ended without it, and is left to itself.");
  } catch (const Error& error) {  // at exit there is no call that could fail
    log(LogLevel::kInfo, std::string("MPI is not finalised: ") + error.what());
  }
}

// MPI_Finalize waits for the other ranks without end. A launcher watches over that, and takes a
// process that leaves without it for failed. Under altorch's own bootstrap no launcher does, so the
// ranks meet first. They meet twice: a rank may have left a barrier while its own messages still
// wait to be sent, or thanks to the messages of a rank that has timed out since. No rank can be
// sure that its last message arrives, so finalize() has a deadline, too.
bool Mpi::leave_together(std::chrono::milliseconds timeout) {
  try {
    if (barrier(timeout) && barrier(timeout)) return true;
    log(LogLevel::kInfo, "MPI is not finalised: some rank has not come to the end of its program in time.");
  } catch (const Error& error) {
    log(LogLevel::kInfo, std::string("MPI is not finalised: ") + error.what());
  }
  return false;
}

bool Mpi::usable() const {
  return !finalized_ && !is_forked_child.load(std::memory_order_relaxed) &&
         !held_up_.load(std::memory_order_acquire);
}

Error Mpi::not_usable() const {
  if (finalized_) return Error(ErrorKind::kClosed, "MPI is already finalised in this process.");
  if (const Error* why = held_up_.load(std::memory_order_acquire)) return *why;
  return Error(
      ErrorKind::kClosed,
      "This is a forked child of a process that uses MPI, and MPI does not survive a fork. Start the "
      "process with the spawn method, or use no process group in it.");
}

void Mpi::hold_up(const std::string& why) {
  mark_broken();
  const Error* expected = nullptr;
  auto error = std::make_unique<Error>(ErrorKind::kTransport, why);
  if (held_up_.compare_exchange_strong(expected, error.get())) static_cast<void>(error.release());
  lock_.hold_up();
}

std::string Mpi::describe(const char* function, int error) const {
  char text[2048] = "";
  table().error_string(error, text, sizeof(text));
  for (char* c = text; *c != '\0'; ++c) {
    if (*c == '\n') *c = ' ';
  }
  return std::string(function) + " failed: " + text;
}

void Mpi::check(const char* function, int error) const {
  if (error != 0) throw Error(ErrorKind::kTransport, describe(function, error));
}

}  // namespace altorch
