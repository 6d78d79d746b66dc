// SPDX-License-Identifier: BSD-3-Clause
// Communicators of the fake NCCL: made, split, ended.
#include <algorithm>
#include <cstring>

#include "support/fake_nccl_host.h"

namespace altorch::fake_nccl {
namespace {

Result get_version(int* version) {
  *version = state().library.version;
  return kSuccess;
}

Result get_unique_id(nccl::UniqueId* id) {
  return call("ncclGetUniqueId", nullptr, 0, [&](Lock&) {
    std::memset(id->internal, 0, sizeof id->internal);
    // Any bytes may occur in one.
    id->internal[0] = static_cast<char>(++state().ids);
    for (std::size_t i = 1; i < sizeof id->internal; ++i) id->internal[i] = static_cast<char>(i * 37);
    return kSuccess;
  });
}

// With the lock held.
FakeComm* new_communicator(State& state, std::shared_ptr<Team> team, int rank) {
  auto& all = state.communicators;
  all.push_back(std::make_unique<FakeComm>());
  all.back()->state = &state;
  all.back()->team = std::move(team);
  all.back()->rank = rank;
  return all.back().get();
}

void keep_config(State& state, const nccl::Config* config) {
  const nccl::Config expected;
  if (config->size != expected.size || config->magic != expected.magic || config->version != expected.version)
    state.misuse.push_back("a config of an unknown layout");
  state.last_config = *config;
}

Result init_rank(Comm* comm, int size, nccl::UniqueId id, int rank, nccl::Config* config) {
  return call("ncclCommInitRankConfig", nullptr, rank, [&](Lock& lock) {
    State& all = state();
    keep_config(all, config);
    auto& team = all.teams[std::string(id.internal, sizeof id.internal)];
    if (!team) team = std::make_shared<Team>();
    if (team->here > 0 && team->size != size) return kInvalidArgument;
    team->size = size;
    ++team->here;
    all.changed.notify_all();
    const auto mine = team;
    if (!all.wait(lock, nullptr, "ncclCommInitRankConfig", [&] { return mine->here == size; }))
      return kInternalError;
    *comm = new_communicator(all, mine, rank);
    return kSuccess;
  });
}

Result split(Comm handle, int color, int key, Comm* part, nccl::Config* config) {
  return call_of("ncclCommSplit", handle, [&](FakeComm& comm, Lock& lock) {
    keep_config(*comm.state, config);
    Team::Split& split = comm.team->splits[++comm.splits];
    split.words[comm.rank] = {color, key};
    comm.state->changed.notify_all();
    const auto size = static_cast<std::size_t>(comm.team->size);
    if (!comm.state->wait(lock, &comm, "ncclCommSplit", [&] { return split.words.size() == size; }))
      return kInternalError;
    *part = nullptr;
    if (color == nccl::kNoColor) return kSuccess;
    auto& team = split.teams[color];
    if (!team) team = std::make_shared<Team>();
    std::vector<std::pair<int, int>> order;  // key, rank
    for (const auto& [rank, word] : split.words) {
      if (word.first == color) order.emplace_back(word.second, rank);
    }
    std::sort(order.begin(), order.end());
    team->size = static_cast<int>(order.size());
    const auto own = std::find(order.begin(), order.end(), std::pair(key, comm.rank));
    *part = new_communicator(*comm.state, team, static_cast<int>(own - order.begin()));
    return kSuccess;
  });
}

// With the lock held: the end of everything that was enqueued.
void drain(FakeComm& comm, Lock& lock) {
  comm.state->changed.wait(lock, [&] { return comm.pending == 0; });
}

Result finalize(Comm handle) {
  return call_of("ncclCommFinalize", handle, [](FakeComm& comm, Lock& lock) {
    drain(comm, lock);
    comm.finalized = true;
    return kSuccess;
  });
}

Result destroy(Comm handle) {
  return call_of("ncclCommDestroy", handle, [](FakeComm& comm, Lock&) {
    if (!comm.finalized) comm.state->misuse.push_back("ncclCommDestroy before ncclCommFinalize");
    comm.ended = true;
    return kSuccess;
  });
}

// Waits for the device, as NCCL does.
Result abort(Comm handle) {
  return call_of("ncclCommAbort", handle, [](FakeComm& comm, Lock& lock) {
    comm.aborted = true;
    comm.state->changed.notify_all();
    drain(comm, lock);
    comm.ended = true;
    return kSuccess;
  });
}

Result async_error(Comm handle, Result* error) {
  return call_of("ncclCommGetAsyncError", handle, [&](FakeComm& comm, Lock&) {
    *error = comm.async_error;
    return kSuccess;
  });
}

}  // namespace

void add_communicators(nccl::Table& table) {
  table.get_version = get_version;
  table.get_unique_id = get_unique_id;
  table.init_rank = init_rank;
  table.split = split;
  table.finalize = finalize;
  table.destroy = destroy;
  table.abort = abort;
  table.async_error = async_error;
}

}  // namespace altorch::fake_nccl
