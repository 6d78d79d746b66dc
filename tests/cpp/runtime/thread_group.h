// SPDX-License-Identifier: BSD-3-Clause
// A process group whose ranks are threads, over the loopback transport.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/communicator.h"
#include "support/map_store.h"
#include "support/on_threads.h"
#include "transports/loopback/channel.h"
#include "windows/windows.h"

namespace altorch {

// A peer that is stopped: nothing comes of it, and nothing reaches it.
class SilentChannel : public Channel {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::int64_t max_tag() const override { return 1 << 26; }
  void send(const void*, std::size_t, int, std::int64_t, Request&) override {}
  void receive(void*, std::size_t, int, std::int64_t, Request&) override {}
  State test(std::span<Request>, std::optional<Error>&) override { return State::kPending; }
  bool cancel(std::span<Request>) override { return true; }
};

// A transport that fails as MPI does when a peer's memory has gone.
class FailingChannel : public SilentChannel {
 public:
  State test(std::span<Request>, std::optional<Error>& error) override {
    error = Error(ErrorKind::kTransport, "process_vm_readv failed");
    return State::kFailed;
  }
};

class ThreadGroup {
 public:
  explicit ThreadGroup(int size, LoopbackOptions options = {}) {
    auto channels = make_loopback_channels(size, options);
    auto store = std::make_shared<MapStore>();
    Membership settings{"test", {}, store, nullptr};
    for (int rank = 0; rank < size; ++rank) settings.global_ranks.push_back(rank);
    for (auto& channel : channels) {
      members_.push_back(std::make_shared<Communicator>(
          settings, std::make_unique<MessageLinks>("loopback", std::move(channel))));
    }
  }
  ThreadGroup(ThreadGroup&&) = default;
  // Ends the group as a backend does. Otherwise the progress thread would serve an open window
  // without end.
  ~ThreadGroup() {
    for (const auto& member : members_) Windows::of(*member).release();
  }
  Communicator& operator[](int rank) { return *members_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(members_.size()); }

  // Runs `body(rank, communicator)` on a thread per rank and returns what each threw: "" for
  // nothing.
  std::vector<std::string> run(const std::function<void(int, Communicator&)>& body) {
    std::vector<std::string> errors(members_.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank, (*this)[rank]);
        } catch (const Error& error) {
          errors[static_cast<std::size_t>(rank)] = std::string(name_of(error.kind())) + ": " + error.what();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    return errors;
  }

 private:
  std::vector<std::shared_ptr<Communicator>> members_;
};

// An all_reduce of `values` in place, as the backend would describe it.
template <typename Value>
Operation all_reduce_of(Communicator& communicator, std::vector<Value>& values, DType dtype,
                        ReduceOp op = ReduceOp::kSum) {
  Operation operation;
  operation.kind = OpKind::kAllReduce;
  operation.dtype = dtype;
  operation.op = op;
  operation.input = operation.output = values.data();
  operation.count = static_cast<std::int64_t>(values.size());
  operation.timeout = std::chrono::seconds(20);
  operation.sequence = communicator.next_sequence();
  return operation;
}

inline void run(Communicator& communicator, const Operation& operation) {
  bool buffers_free = false;
  communicator.run(operation, buffers_free);
  EXPECT_TRUE(buffers_free);
}

inline std::shared_ptr<Task> task_of(const Operation& operation) {
  auto task = std::make_shared<Task>();
  task->operation = operation;
  return task;
}

}  // namespace altorch
