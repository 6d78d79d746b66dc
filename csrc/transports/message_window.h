// SPDX-License-Identifier: BSD-3-Clause
// Windows over messages: each rank carries out the requests of its peers on its own memory,
// whenever serve() is called. Slower than any other way, and always available.
//
// A call consists of a request, the data of a put or an accumulate, an answer, and the data of a
// get. A rank answers the requests of each peer one by one, in their order.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "transports/channel.h"
#include "transports/window.h"

namespace altorch {

class MessageWindow : public RemoteMemory {
 public:
  // `memory`, `bytes`: what this rank has registered. `tags`: the first of kTags tags that no other
  // messages use.
  MessageWindow(Channel& channel, std::int64_t tags, std::byte* memory, std::size_t bytes);
  ~MessageWindow() override;
  static constexpr std::int64_t kTags = 4;

  const char* name() const override { return "messages"; }
  State begin(WindowCall& call, std::optional<Error>& error) override;
  State test(WindowCall& call, std::optional<Error>& error) override;
  bool cancel(WindowCall& call) override;
  std::uint64_t signals(int source, int slot) const override;
  bool has_left(int rank) const override;
  bool is_served() const override { return true; }
  bool keeps_order() const override { return true; }
  bool serve() override;
  bool close(bool agreed) override;

 private:
  struct Server;
  struct Asked;
  bool serve(Server& server);
  void carry_out(Server& server);
  void answer(Server& server);
  void take_leave();

  Channel& channel_;
  const std::int64_t tags_;
  std::byte* const memory_;
  const std::size_t bytes_;
  std::mutex asking_;   // a request and its data are sent one behind the other
  std::mutex serving_;  // guards the memory, as far as this window writes to it, and what follows
  std::vector<std::unique_ptr<Server>> servers_;  // by rank; this rank's own has only its signals
  bool closed_ = false, free_ = true;
};

}  // namespace altorch
