// SPDX-License-Identifier: BSD-3-Clause
// What other ranks ask of a window's memory by messages.
#include <vector>

#include "fuzz/target.h"
#include "transports/message_window.h"

namespace altorch {
namespace {

// Whatever is received comes from the input.
class HostileChannel : public Channel {
 public:
  explicit HostileChannel(fuzz::Input& input) : input_(input) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::int64_t max_tag() const override { return 1 << 20; }
  void send(const void* data, std::size_t bytes, int, std::int64_t, Request&) override {
    const auto* begin = static_cast<const std::byte*>(data);
    sent_.assign(begin, begin + bytes);
  }
  void receive(void* data, std::size_t bytes, int, std::int64_t, Request& request) override {
    if (input_.empty()) {
      request.handle = 1;
      return;
    }
    std::memset(data, 0, bytes);
    input_.take(data, bytes);
  }
  State test(std::span<Request> requests, std::optional<Error>&) override {
    for (const Request& request : requests)
      if (request.handle != 0) return State::kPending;
    return State::kDone;
  }
  bool cancel(std::span<Request> requests) override {
    for (Request& request : requests) request.handle = 0;
    return true;
  }

 private:
  fuzz::Input& input_;
  std::vector<std::byte> sent_;
};

}  // namespace

FUZZ_TARGET(message_window, 3000) {
  std::vector<std::byte> memory(input.number<std::uint8_t>());
  HostileChannel channel(input);
  MessageWindow window(channel, 0, memory.data(), memory.size());
  for (int turns = 0; turns < 64 && window.serve(); ++turns) {
  }
  window.close(true);
}

}  // namespace altorch
