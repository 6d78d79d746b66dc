// SPDX-License-Identifier: BSD-3-Clause
// docs/extending.md, "A transport": messages through a lock and a list, as the page has it; it
// conforms, and a group runs over it.
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/thread_group.h"
#include "support/map_store.h"
#include "support/on_threads.h"
#include "transports/channel_conformance.h"

namespace altorch {
namespace {

// [transport]
struct Message {
  int from, to;
  std::int64_t tag;
  std::vector<std::byte> text;
};

struct PostOffice {
  std::mutex mutex;
  std::list<Message> messages;  // oldest first
};

class PostChannel : public Channel {
 public:
  PostChannel(std::shared_ptr<PostOffice> office, int rank, int size)
      : office_(std::move(office)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::int64_t max_tag() const override { return (std::int64_t{1} << 40) - 1; }

  void send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override {
    const auto* begin = static_cast<const std::byte*>(data);
    const std::lock_guard lock(office_->mutex);
    office_->messages.push_back({rank_, peer, tag, {begin, begin + bytes}});
    request.is_receive = false;
    request.handle = 0;  // copied, so it is done
  }

  void receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override {
    request.is_receive = true;
    request.bytes = bytes;
    const std::lock_guard lock(office_->mutex);
    request.handle = ++handles_;
    wanted_[request.handle] = {data, bytes, request.exact, peer, tag};
  }

  State test(std::span<Request> requests, std::optional<Error>& error) override {
    const std::lock_guard lock(office_->mutex);
    deliver();
    State state = State::kDone;
    for (Request& request : requests) {
      if (request.handle == 0) continue;
      const auto wanted = wanted_.find(request.handle);
      if (!wanted->second.arrived) {
        state = State::kPending;
        continue;
      }
      request.peer = wanted->second.peer;
      request.handle = 0;
      if (wanted->second.error) error = wanted->second.error;
      wanted_.erase(wanted);
    }
    return error ? State::kFailed : state;
  }

  bool cancel(std::span<Request> requests) override {
    const std::lock_guard lock(office_->mutex);
    for (Request& request : requests) {
      wanted_.erase(request.handle);
      request.handle = 0;
    }
    return true;  // no buffer is touched any more
  }

 private:
  struct Wanted {
    void* data;
    std::size_t bytes;
    bool exact;
    int peer;  // who sent it, once it has arrived
    std::int64_t tag;
    bool arrived = false;
    std::optional<Error> error = {};
  };

  // Gives each receive the oldest message that fits. The caller that tests the request learns of an
  // error.
  void deliver() {
    for (auto& [handle, wanted] : wanted_) {
      if (wanted.arrived) continue;
      const auto message =
          std::find_if(office_->messages.begin(), office_->messages.end(), [&](const Message& each) {
            return each.to == rank_ && each.tag == wanted.tag &&
                   (wanted.peer == kAnySource || wanted.peer == each.from);
          });
      if (message == office_->messages.end()) continue;
      const std::size_t sent = message->text.size();
      if (sent > wanted.bytes || (wanted.exact && sent < wanted.bytes)) {
        wanted.error = Error(ErrorKind::kMismatch, "rank " + std::to_string(message->from) + " sent " +
                                                       std::to_string(sent) + " bytes where " +
                                                       std::to_string(wanted.bytes) + " were expected");
      } else if (sent > 0) {
        std::memcpy(wanted.data, message->text.data(), sent);
      }
      wanted.peer = message->from;
      wanted.arrived = true;
      office_->messages.erase(message);
    }
  }

  const std::shared_ptr<PostOffice> office_;
  const int rank_, size_;
  std::uintptr_t handles_ = 0;
  std::map<std::uintptr_t, Wanted> wanted_;  // by handle, the oldest first
};
// [transport]

std::vector<std::string> on_ranks(int size, const std::function<void(std::unique_ptr<Channel>)>& body) {
  const auto office = std::make_shared<PostOffice>();
  return on_threads(size, [&](int rank) { body(std::make_unique<PostChannel>(office, rank, size)); });
}

TEST(Extending, ATransport) {
  for (const int size : {1, 2, 3}) {
    EXPECT_EQ(on_ranks(size, [](auto channel) { conformance::channel_conforms(*channel); }), all_good(size));
    const auto store = std::make_shared<MapStore>();
    const auto errors = on_ranks(size, [&](std::unique_ptr<Channel> channel) {
      const int rank = channel->rank();
      Membership members{"post", {}, store, nullptr};
      for (int each = 0; each < size; ++each) members.global_ranks.push_back(each);
      const auto group = std::make_shared<Communicator>(
          std::move(members), std::make_unique<MessageLinks>("post", std::move(channel)));
      for (const int count : {0, 1, 1000, 200'000}) {
        std::vector<double> values(static_cast<std::size_t>(count), rank + 1.0);
        run(*group, all_reduce_of(*group, values, DType::kFloat64));
        for (const double value : values) ASSERT_EQ(value, size * (size + 1) / 2.0);
      }
    });
    EXPECT_EQ(errors, all_good(size));
  }
}

}  // namespace
}  // namespace altorch
