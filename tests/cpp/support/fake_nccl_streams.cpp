// SPDX-License-Identifier: BSD-3-Clause
// What happens in streams: parts of operations wait for those of the other ranks.
#include <algorithm>
#include <cstring>

#include "support/fake_nccl_parts.h"

namespace altorch::fake_nccl {
namespace {

constexpr std::chrono::seconds kPatience{30};  // a test that waits so long has failed

std::string name_of(const FakeComm& comm, const Part& part) {
  static constexpr const char* kNames[] = {"all_reduce",     "reduce", "broadcast", "all_gather",
                                           "reduce_scatter", "send",   "receive"};
  return "rank " + std::to_string(comm.rank) + ": " + kNames[static_cast<int>(part.kind)] + " #" +
         std::to_string(part.number);
}

// Bytes that the rank brings along.
std::size_t input_bytes(const FakeComm& comm, const Part& part) {
  const std::size_t bytes = part.count * bytes_of(part.type);
  if (part.kind == Kind::kBroadcast && comm.rank != part.peer) return 0;
  return part.kind == Kind::kReduceScatter ? bytes * static_cast<std::size_t>(comm.team->size) : bytes;
}

bool are_alike(const Part& a, const Part& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op && a.peer == b.peer;
}

class Run {
 public:
  Run(State& state, FakeComm& comm) : state_(state), comm_(comm), team_(*comm.team) {}

  // What is grouped begins at once: no part waits for another one of the same rank.
  bool whole(const std::vector<Part>& parts) {
    for (const Part& part : parts) part.is_message() ? post_message(part) : post(part);
    bool done = true;
    for (const Part& part : parts) {
      if (part.kind != Kind::kSend)
        done = done && (part.kind == Kind::kReceive ? receive(part) : take_part(part));
    }
    for (const Part& part : parts) {
      if (part.kind == Kind::kSend) done = wait_until_taken(part, done) && done;
    }
    return done;
  }

 private:
  void post(const Part& part) {
    auto mine = std::make_shared<Contribution>();
    mine->part = part;
    const auto* begin = static_cast<const unsigned char*>(part.input);
    mine->data.assign(begin, begin + input_bytes(comm_, part));
    const std::lock_guard lock(state_.mutex);
    auto& all = team_.collectives[part.number];
    all.resize(static_cast<std::size_t>(team_.size));
    all[static_cast<std::size_t>(comm_.rank)] = std::move(mine);
    state_.changed.notify_all();
  }

  void post_message(const Part& part) {
    if (part.kind == Kind::kReceive) return;
    const std::lock_guard lock(state_.mutex);
    Message& message = team_.messages[{comm_.rank, part.peer, part.number}];
    message.data = part.input;
    message.bytes = part.count * bytes_of(part.type);
    message.there = true;
    state_.changed.notify_all();
  }

  bool take_part(const Part& part) {
    std::vector<std::shared_ptr<const Contribution>> all;
    {
      std::unique_lock lock(state_.mutex);
      if (!state_.wait(lock, &comm_, name_of(comm_, part), [&] {
            all = team_.collectives[part.number];
            return std::none_of(all.begin(), all.end(), [](const auto& entry) { return !entry; });
          }))
        return false;
      for (const auto& other : all) {
        if (are_alike(other->part, part)) continue;
        state_.misuse.push_back(name_of(comm_, part) + " meets another operation");
        return false;
      }
    }
    compute(all, comm_.rank, part.output);
    return true;
  }

  // Under the lock, so that a sender that is aborted leaves before or after.
  bool receive(const Part& part) {
    std::unique_lock lock(state_.mutex);
    Message& message = team_.messages[{part.peer, comm_.rank, part.number}];
    if (!state_.wait(lock, &comm_, name_of(comm_, part), [&] { return message.there; })) return false;
    const std::size_t bytes = part.count * bytes_of(part.type);
    if (bytes != message.bytes) state_.misuse.push_back(name_of(comm_, part) + " meets one of another size");
    if (bytes > 0) std::memcpy(part.output, message.data, std::min(bytes, message.bytes));
    message.there = false;
    message.taken = true;
    state_.changed.notify_all();
    return true;
  }

  bool wait_until_taken(const Part& part, bool patient) {
    std::unique_lock lock(state_.mutex);
    Message& message = team_.messages[{comm_.rank, part.peer, part.number}];
    const bool taken = patient
                           ? state_.wait(lock, &comm_, name_of(comm_, part), [&] { return message.taken; })
                           : message.taken;
    if (!taken) message.there = false;  // the buffer is the caller's again
    return taken;
  }

  State& state_;
  FakeComm& comm_;
  Team& team_;
};

}  // namespace

bool State::wait(std::unique_lock<std::mutex>& lock, const FakeComm* comm, const std::string& what,
                 const std::function<bool()>& there) {
  const auto over = [&] { return ending || (comm && comm->aborted); };
  if (!changed.wait_for(lock, kPatience, [&] { return over() || there(); })) {
    misuse.push_back(what + " waited in vain");
    ending = true;
    changed.notify_all();
  }
  return !over() && there();
}

void launch(State& state, FakeComm& comm, std::vector<Part> parts, Stream stream) {
  for (Part& part : parts) {
    std::uint64_t& last = !part.is_message()         ? comm.collectives
                          : part.kind == Kind::kSend ? comm.sent[part.peer]
                                                     : comm.received[part.peer];
    part.number = ++last;
  }
  put_on_stream(
      state, comm, [&state, &comm, parts = std::move(parts)] { Run(state, comm).whole(parts); }, stream);
}

void put_on_stream(State& state, FakeComm& comm, std::function<void()> work, Stream stream) {
  ++comm.pending;
  FakeDevice::launch(
      [&state, &comm, work = std::move(work)] {
        work();
        const std::lock_guard lock(state.mutex);
        --comm.pending;
        state.changed.notify_all();
      },
      stream);
}

}  // namespace altorch::fake_nccl
