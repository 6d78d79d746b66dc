// SPDX-License-Identifier: BSD-3-Clause
// Making communicators, and the other waits of set-up: each with a deadline, and a look for lost
// ranks.
#include <algorithm>

#include "base/adaptive_wait.h"
#include "base/env.h"
#include "platform/native_thread.h"
#include "rendezvous/absent.h"
#include "transports/mpi/mpi.h"
#include "transports/mpi/mpi_entry.h"

namespace altorch {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};

Error too_late(const std::string& what, std::chrono::milliseconds timeout) {
  return Error(ErrorKind::kTimeout, what + " was not done after " + in_seconds(timeout) +
                                        ": some rank does not take part; find the one that is late or lost");
}

// What MPI_Comm_create_group gave.
struct CreatedPart {
  std::optional<Error> refusal;
  int code = 0;
  std::intptr_t communicator = 0;
};

GroupCreation of_the_job(const char* name) {
  GroupCreation creation{name};
  creation.timeout = seconds_setting("ALTORCH_BOOTSTRAP_SECONDS");
  return creation;
}

}  // namespace

std::unique_ptr<MpiGroup> Mpi::create_group(std::span<const int> world_ranks, std::int64_t tag,
                                            const GroupCreation& creation) {
  auto self = std::find(world_ranks.begin(), world_ranks.end(), rank_);
  if (self == world_ranks.end()) {
    throw Error(ErrorKind::kInvalidArgument,
                "Rank " + std::to_string(rank_) + " is not a member of the group that it creates.");
  }
  const auto is_own_index = [index = 0](int rank) mutable { return rank == index++; };
  const bool is_world = static_cast<int>(world_ranks.size()) == size_ &&
                        std::all_of(world_ranks.begin(), world_ranks.end(), is_own_index);
  const std::intptr_t communicator =
      is_world ? copy_world(creation) : create_part(world_ranks, static_cast<int>(tag), creation);
  return std::make_unique<MpiGroup>(
      shared_from_this(), communicator, static_cast<int>(self - world_ranks.begin()),
      std::vector<int>(world_ranks.begin(), world_ranks.end()), creation.deaths);
}

// The whole world: copied without blocking inside MPI, which matters when there are more ranks than
// cores.
std::intptr_t Mpi::copy_world(const GroupCreation& creation) {
  auto storage = std::make_unique<std::intptr_t>(0);
  std::intptr_t request = 0;
  {
    const MpiEntry entry(*this);
    entry.or_throw();
    check("MPI_Comm_idup", table().comm_idup(world_, storage.get(), &request));
  }
  try {
    wait(request, "MPI_Comm_idup", creation);
  } catch (...) {
    static_cast<void>(storage.release());  // MPI may still write there
    throw;
  }
  const MpiEntry entry(*this);
  entry.or_throw();
  check("MPI_Comm_idup", table().comm_adopt(storage.get()));
  return *storage;
}

std::intptr_t Mpi::create_part(std::span<const int> world_ranks, int tag, const GroupCreation& creation) {
  const auto part = std::make_shared<CreatedPart>();
  const auto body = [part, self = shared_from_this(), tag,
                     ranks = std::vector<int>(world_ranks.begin(), world_ranks.end())] {
    const MpiEntry entry(*self);
    if (!entry) {
      part->refusal = entry.refusal();
      return;
    }
    part->code = self->table().comm_create_group(static_cast<int>(ranks.size()), ranks.data(), tag,
                                                 &part->communicator);
  };
  run_collective(body, creation);
  if (part->refusal) throw *part->refusal;
  check("MPI_Comm_create_group", part->code);
  return part->communicator;
}

void Mpi::run_collective(const std::function<void()>& body, const GroupCreation& creation) {
  if (!calls_from_any_thread_) return body();
  wait_for_part(NativeThread("al-mpi-create", body), creation);
}

void Mpi::wait_for_part(NativeThread creating, const GroupCreation& creation) {
  const auto deadline = AdaptiveWait::Clock::now() + creation.timeout;
  const std::string what =
      (creation.what.empty() ? "the creation" : creation.what) + " of group '" + creation.name + "'";
  while (!creating.ends_within(kBetweenLooks)) {
    try {
      creation.check_peers();
      if (AdaptiveWait::Clock::now() > deadline) throw too_late("T" + what.substr(1), creation.timeout);
    } catch (const Error& error) {
      hold_up("MPI is held up by " + what + ", which failed (" + error.what() + "); start the job again");
      throw;
    }
  }
}

// After an error the request is still on its way: its memory must stay.
void Mpi::wait(std::intptr_t request, const char* function, const GroupCreation& creation) {
  AdaptiveWait pause;
  AltorchMpiTest result = {};
  const auto deadline = AdaptiveWait::Clock::now() + creation.timeout;
  auto next_look = AdaptiveWait::Clock::now() + kBetweenLooks;
  try {
    while (request != 0) {
      {
        const MpiEntry entry(*this);
        entry.or_throw();
        check(function, table().test(&request, &result));
      }
      if (result.done) continue;
      pause.pause();
      const auto now = AdaptiveWait::Clock::now();
      if (now < next_look) continue;
      next_look = now + kBetweenLooks;
      creation.check_peers();
      if (now > deadline) throw too_late(creation.name + " (" + function + ")", creation.timeout);
    }
  } catch (...) {
    mark_broken();
    throw;
  }
}

std::vector<std::string> Mpi::exchange(const std::string& text) {
  const GroupCreation creation = of_the_job("The exchange of addresses");
  struct Buffers {
    std::vector<int> lengths;
    int own = 0;
    std::string padded, all;
  };
  auto buffers = std::make_unique<Buffers>();
  buffers->lengths.resize(static_cast<std::size_t>(size_));
  buffers->own = static_cast<int>(text.size());
  const auto gather = [&](const void* input, void* output, int count, AltorchMpiType type) {
    std::intptr_t request = 0;
    {
      const MpiEntry entry(*this);
      entry.or_throw();
      check("MPI_Iallgather", table().iallgather(input, output, count, type, world_, &request));
    }
    try {
      wait(request, "MPI_Iallgather", creation);
    } catch (...) {
      static_cast<void>(buffers.release());
      throw;
    }
  };
  gather(&buffers->own, buffers->lengths.data(), 1, ALTORCH_MPI_INT32);
  const int longest = *std::max_element(buffers->lengths.begin(), buffers->lengths.end());
  const auto stride = static_cast<std::size_t>(longest);
  buffers->padded = text;
  buffers->padded.resize(stride);
  buffers->all.resize(stride * buffers->lengths.size());
  gather(buffers->padded.data(), buffers->all.data(), longest, ALTORCH_MPI_UINT8);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < buffers->lengths.size(); ++i)
    texts.push_back(buffers->all.substr(i * stride, static_cast<std::size_t>(buffers->lengths[i])));
  return texts;
}

}  // namespace altorch
