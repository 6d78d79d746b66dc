#include "transports/mpi/mpi.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "common/adaptive_wait.h"
#include "common/log.h"
#include "transports/mpi/channel.h"
#include "transports/mpi/collectives.h"

namespace altorch {
namespace {

// Set in forked children: they share the parent's MPI memory and sockets and must leave them alone.
std::atomic<bool> is_forked_child{false};

void watch_for_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { is_forked_child = true; }); });
}

AltorchMpiThread to_table(MpiThreadLevel level) { return static_cast<AltorchMpiThread>(level); }

}  // namespace

MpiGroup::MpiGroup(std::shared_ptr<Mpi> mpi, std::intptr_t communicator, int rank, int size)
    : mpi_(std::move(mpi)),
      communicator_(communicator),
      channel_(std::make_unique<MpiChannel>(*mpi_, communicator, rank, size)),
      collectives_(std::make_unique<MpiCollectives>(*mpi_, communicator, rank, size)) {}

MpiGroup::~MpiGroup() {
  if (broken_ || !mpi_->usable()) return;
  std::lock_guard guard(mpi_->lock());
  // A large message that nobody has received makes MPICH 5 abort here; the communicator is left alone then.
  int unreceived = 0, source = 0;
  if (mpi_->table().iprobe_any(-1, communicator_, &unreceived, &source) != 0 || unreceived != 0) return;
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

std::unique_ptr<MpiGroup> Mpi::create_group(std::span<const int> world_ranks, std::int64_t tag) {
  auto self = std::find(world_ranks.begin(), world_ranks.end(), rank_);
  if (self == world_ranks.end()) {
    throw Error(ErrorKind::kInvalidArgument,
                "Rank " + std::to_string(rank_) + " is not a member of the group that it creates.");
  }
  if (!usable()) throw not_usable();
  std::intptr_t communicator = 0;
  const auto is_own_index = [index = 0](int rank) mutable { return rank == index++; };
  if (static_cast<int>(world_ranks.size()) == size_ &&
      std::all_of(world_ranks.begin(), world_ranks.end(), is_own_index)) {
    // The whole world: copied without blocking inside MPI, which matters when there are more ranks than
    // cores.
    std::intptr_t request = 0;
    {
      std::lock_guard guard(lock_);
      check("MPI_Comm_idup", table().comm_idup(world_, &communicator, &request));
    }
    wait(request, "MPI_Comm_idup");
    std::lock_guard guard(lock_);
    check("MPI_Comm_idup", table().comm_adopt(&communicator));
  } else {
    std::lock_guard guard(lock_);
    check("MPI_Comm_create_group",
          table().comm_create_group(static_cast<int>(world_ranks.size()), world_ranks.data(),
                                    static_cast<int>(tag), &communicator));
  }
  return std::make_unique<MpiGroup>(shared_from_this(), communicator,
                                    static_cast<int>(self - world_ranks.begin()),
                                    static_cast<int>(world_ranks.size()));
}

bool Mpi::barrier(std::chrono::milliseconds timeout) {
  const auto deadline = AdaptiveWait::Clock::now() + timeout;
  std::intptr_t request = 0;
  {
    std::lock_guard guard(lock_);
    check("MPI_Ibarrier", table().ibarrier(world_, &request));
  }
  AdaptiveWait pause;
  while (true) {
    AltorchMpiTest result = {};
    {
      std::lock_guard guard(lock_);
      check("MPI_Test", table().test(&request, &result));
    }
    if (result.done) return true;
    if (AdaptiveWait::Clock::now() > deadline) return false;
    pause.pause();
  }
}

void Mpi::wait(std::intptr_t request, const char* function) {
  AdaptiveWait pause;
  AltorchMpiTest result = {};
  while (request != 0) {
    {
      std::lock_guard guard(lock_);
      check(function, table().test(&request, &result));
    }
    if (!result.done) pause.pause();
  }
}

std::vector<std::string> Mpi::exchange(const std::string& text) {
  std::vector<int> lengths(static_cast<std::size_t>(size_));
  const int own = static_cast<int>(text.size());
  std::intptr_t request = 0;
  {
    std::lock_guard guard(lock_);
    check("MPI_Iallgather", table().iallgather(&own, lengths.data(), 1, ALTORCH_MPI_INT32, world_, &request));
  }
  wait(request, "MPI_Iallgather");
  const int longest = *std::max_element(lengths.begin(), lengths.end());
  const auto stride = static_cast<std::size_t>(longest);
  std::string padded = text;
  padded.resize(stride);
  std::string all(stride * lengths.size(), '\0');
  {
    std::lock_guard guard(lock_);
    check("MPI_Iallgather",
          table().iallgather(padded.data(), all.data(), longest, ALTORCH_MPI_UINT8, world_, &request));
  }
  wait(request, "MPI_Iallgather");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    texts.push_back(all.substr(i * stride, static_cast<std::size_t>(lengths[i])));
  }
  return texts;
}

void Mpi::finalize(std::chrono::milliseconds patience) {
  if (origin_ == MpiOrigin::kExisting || broken_ || !usable()) return;
  if (origin_ == MpiOrigin::kBootstrap && !leave_together(patience)) return;
  std::lock_guard guard(lock_);
  finalized_ = true;
  // MPICH over UCX needs a barrier of its process manager inside MPI_Finalize, or the first rank to leave
  // resets the connections of those that still flush them, and these abort. At exit we can offer none, for
  // the store may be gone; so MPI is left to the end of the process.
  if (origin_ == MpiOrigin::kBootstrap && has_several_nodes_ && library_.family != MpiFamily::kOpenMpi)
    return;
  if (before_finalize_) before_finalize_();
  table().finalize();
}

// MPI_Finalize waits for the other ranks without end. A launcher watches over that and takes a process that
// leaves without it for a failure; under our own bootstrap nobody does, so the ranks meet first.
bool Mpi::leave_together(std::chrono::milliseconds patience) {
  // A rank may be through a barrier while its own messages still wait to be sent, so a second one keeps it
  // here until the others are through the first. Whether they are through the second matters to nobody.
  constexpr std::chrono::milliseconds kLinger{200};
  try {
    if (!barrier(patience)) {
      log(LogLevel::kInfo, "MPI is not finalised: some rank has not come to the end of its program in time.");
      return false;
    }
  } catch (const Error& error) {
    log(LogLevel::kInfo, std::string("MPI is not finalised: ") + error.what());
    return false;
  }
  try {
    barrier(kLinger);
  } catch (const Error&) {
    // Somebody has left already.
  }
  return true;
}

bool Mpi::usable() const { return !finalized_ && !is_forked_child.load(std::memory_order_relaxed); }

Error Mpi::not_usable() const {
  return finalized_ ? Error(ErrorKind::kClosed, "MPI is already finalised in this process.")
                    : Error(ErrorKind::kClosed,
                            "This is a forked child of a process that uses MPI, and MPI does not survive a "
                            "fork. Start "
                            "the process with the spawn method, or use no process group in it.");
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
