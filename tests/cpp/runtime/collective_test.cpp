// SPDX-License-Identifier: BSD-3-Clause
// Native collectives of a transport, and the comparison of calls before them.
#include "runtime/collective.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "runtime/thread_group.h"
#include "support/on_threads.h"
#include "support/route_setting.h"

namespace altorch {
namespace {

// Where the ranks of a group, which are threads, add up.
struct Hall {
  struct Call {
    int arrived = 0;
    std::set<std::uint64_t> fingerprints;
    std::vector<float> sum;
  };
  std::mutex mutex;
  std::map<std::size_t, Call> calls;
};

// all_reduce of float32.
class HallCollectives : public NativeCollectives {
 public:
  HallCollectives(Hall& hall, int size, bool compares) : hall_(hall), size_(size), compares_(compares) {}

  std::string_view name() const override { return "native"; }
  bool offers(const Call& call) const override {
    return call.kind == OpKind::kAllReduce && call.dtype == DType::kFloat32;
  }
  bool compares_calls() const override { return compares_; }
  void start(const Call& call, std::uint64_t fingerprint, std::string_view, Request& request) override {
    output_ = {static_cast<float*>(call.output), static_cast<std::size_t>(call.count)};
    request.handle = ++calls_;
    const std::lock_guard lock(hall_.mutex);
    Hall::Call& here = hall_.calls[calls_];
    ++here.arrived;
    here.fingerprints.insert(fingerprint);
    here.sum.resize(std::max(here.sum.size(), output_.size()));
    for (std::size_t i = 0; i < output_.size(); ++i) here.sum[i] += output_[i];
  }
  State test(Request& request, std::optional<Error>& error) override {
    const std::lock_guard lock(hall_.mutex);
    const Hall::Call& here = hall_.calls[request.handle];
    if (here.arrived < size_) return State::kPending;
    if (compares_ && here.fingerprints.size() > 1) {
      error = Error(ErrorKind::kMismatch, "the hall heard two calls");
      return State::kFailed;
    }
    std::copy_n(here.sum.begin(), output_.size(), output_.begin());
    return State::kDone;
  }
  bool cancel(Request& request) override {
    request.handle = 0;
    return true;
  }

 private:
  Hall& hall_;
  const int size_;
  const bool compares_;
  std::size_t calls_ = 0;
  std::span<float> output_;
};

class HallLinks : public MessageLinks {
 public:
  HallLinks(std::unique_ptr<Channel> channel, Hall& hall, bool compares)
      : MessageLinks("hall", std::move(channel)), collectives_(hall, this->channel().size(), compares) {}
  std::vector<NativeCollectives*> collectives() override { return {&collectives_}; }

 private:
  HallCollectives collectives_;
};

// What the ranks threw, each in an all_reduce of `counts[rank]` ones.
std::vector<std::string> add_up(const std::vector<std::size_t>& counts, Hall& hall, bool compares) {
  const RouteSetting setting("all_reduce=native");
  const int size = static_cast<int>(counts.size());
  auto channels = make_loopback_channels(size);
  const auto store = std::make_shared<MapStore>();
  return on_threads(size, [&](int rank) {
    const auto me = static_cast<std::size_t>(rank);
    Membership members{"hall", {}, store, nullptr};
    for (int each = 0; each < size; ++each) members.global_ranks.push_back(each);
    const auto group = std::make_shared<Communicator>(
        std::move(members), std::make_unique<HallLinks>(std::move(channels[me]), hall, compares));
    for (int call = 0; call < 3; ++call) {
      std::vector<float> ones(counts[me], 1.0f);
      run(*group, all_reduce_of(*group, ones, DType::kFloat32));
      EXPECT_EQ(ones, std::vector<float>(counts[me], static_cast<float>(size)));
    }
  });
}

TEST(NativeCollectives, CarryACallWhetherTheyCompareOrNot) {
  for (const bool compares : {true, false}) {
    for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
      Hall hall;
      const auto errors = add_up(std::vector<std::size_t>(ranks, 1000), hall, compares);
      EXPECT_EQ(errors, std::vector<std::string>(ranks));
      EXPECT_EQ(hall.calls.size(), 3u) << "the algorithms did it";
    }
  }
}

TEST(NativeCollectives, TellThemselvesOfAMismatchOrAreNotBegun) {
  for (const bool compares : {true, false}) {
    Hall hall;
    for (const std::string& error : add_up({1000, 999}, hall, compares)) {
      EXPECT_NE(error.find(compares ? "the hall heard" : "all ranks must make the same calls"),
                std::string::npos)
          << error;
    }
    EXPECT_EQ(hall.calls.empty(), !compares);
  }
}

}  // namespace
}  // namespace altorch
