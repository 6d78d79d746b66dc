// SPDX-License-Identifier: BSD-3-Clause
// What the fake NCCL is made of: communicators, and how what ranks have enqueued comes together in
// streams.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "gpu/nccl/library.h"
#include "support/fake_device.h"

namespace altorch::fake_nccl {

enum class Kind : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kSend,
  kReceive
};

// One rank's part in an operation.
struct Part {
  Kind kind;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  int type = 0;
  int op = 0;                // nccl::Op, or kPremulSum
  double factor = 1.0;       // of kPremulSum
  int peer = 0;              // or the root
  std::uint64_t number = 0;  // of the communicator's collectives, or of the messages to or from the peer

  bool is_message() const { return kind == Kind::kSend || kind == Kind::kReceive; }
};
inline constexpr int kPremulSum = 5;

// Of one element of an nccl::Type.
std::size_t bytes_of(int type);
// One element of it, as a number.
double number_at(int type, const void* data);

struct Contribution {
  Part part;
  std::vector<unsigned char> data;  // the input, as it was when the rank's stream came to it
};
// What rank `rank` gets of the collective, from the parts of all ranks, by rank.
void compute(std::span<const std::shared_ptr<const Contribution>> all, int rank, void* output);

struct Message {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool there = false, taken = false;
};

// The ranks of one communicator, and what they are in.
struct Team {
  int size = 0;
  int here = 0;  // that have come to make it
  std::map<std::uint64_t, std::vector<std::shared_ptr<const Contribution>>> collectives;
  std::map<std::tuple<int, int, std::uint64_t>, Message> messages;  // from, to, number
  struct Block {
    unsigned char* data;
    std::size_t bytes;
  };
  std::map<std::uint64_t, std::map<int, Block>> windows;          // what the ranks have registered
  std::map<std::pair<int, int>, std::uint64_t> signals, awaited;  // from, to
  struct Split {
    std::map<int, std::pair<int, int>> words;  // rank: color, key
    std::map<int, std::shared_ptr<Team>> teams;
  };
  std::map<std::uint64_t, Split> splits;
};

struct State;

// One rank's communicator.
struct FakeComm {
  State* state = nullptr;
  std::shared_ptr<Team> team;
  int rank = 0;
  bool busy = false, finalized = false, ended = false, aborted = false, suspended = false;
  int pending = 0;  // launches that have not come to their end
  nccl::Result async_error = nccl::kSuccess;
  std::uint64_t collectives = 0, splits = 0, windows = 0;
  std::map<int, std::uint64_t> sent, received;
  std::map<int, double> factors;  // of operators that were made
  int next_op = 100;
  std::map<void*, std::uint64_t> handles;  // of buffers; not 0: the number of a window
};

struct Fault {
  std::string name;
  int rank;
  bool hangs;
};

// Everything, under one lock.
struct State {
  nccl::Library library;
  std::mutex mutex;
  std::condition_variable changed;
  bool ending = false;
  int inside = 0;  // threads in a call
  std::map<std::string, int> calls;
  std::vector<Fault> faults;
  std::vector<std::string> misuse;
  std::map<std::string, std::shared_ptr<Team>> teams;  // by unique id
  std::vector<std::unique_ptr<FakeComm>> communicators;
  nccl::Config last_config;
  std::uint64_t ids = 0;

  // Waits until `there`, or `comm` is aborted, or all ends. False when it is in vain.
  bool wait(std::unique_lock<std::mutex>& lock, const FakeComm* comm, const std::string& what,
            const std::function<bool()>& there);
};

// With the lock held: numbers the parts and puts them on the stream, as one.
void launch(State& state, FakeComm& comm, std::vector<Part> parts, Stream stream);

// With the lock held: `work` on the stream, which the end of the communicator waits for.
void put_on_stream(State& state, FakeComm& comm, std::function<void()> work, Stream stream);

// Fills the table as that version has it.
nccl::Table table_of(int version);
// The one that lives.
State& state();
void set_state(State* state);

inline constexpr nccl::Result kRemoteError = 6;

}  // namespace altorch::fake_nccl
