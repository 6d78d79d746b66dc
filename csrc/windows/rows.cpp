// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <vector>

#include "base/adaptive_wait.h"
#include "base/env.h"
#include "platform/cores.h"
#include "platform/shareable.h"
#include "rendezvous/shared_memory.h"
#include "rendezvous/store_allgather.h"
#include "transports/message_window.h"
#include "transports/native_windows.h"
#include "transports/shm/transport.h"
#include "transports/shm/window.h"
#include "windows/handle.h"
#include "windows/row.h"

namespace altorch {
namespace {

const std::string kPurpose = "to open a window";

// The same on all ranks.
std::string unsupported_reason_of(const std::vector<HostHandle>& cards) {
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    if (!cards[rank].unsupported_reason.empty())
      return "on rank " + std::to_string(rank) + " " + cards[rank].unsupported_reason;
    if (cards[rank].node != cards[0].node) return "its ranks are on several nodes";
  }
  return "";
}

std::vector<shm::ShmWindow::Part> parts_of(const WindowOpening& opening, const std::vector<HostHandle>& cards,
                                           const Descriptor& own) {
  const int rank = opening.group.rank(), size = opening.group.size();
  bool any_shareable = false;
  for (const HostHandle& card : cards) any_shareable |= card.shareable.bytes > 0;
  std::vector<Descriptor> descriptors(static_cast<std::size_t>(size));
  if (any_shareable)
    descriptors = exchange_descriptors(opening.store, "memory", rank, size, own, opening.timeout);
  std::vector<shm::ShmWindow::Part> parts;
  for (std::size_t other = 0; other < cards.size(); ++other) {
    const HostHandle& card = cards[other];
    shm::ShmWindow::Part part;
    if (static_cast<int>(other) == rank) {
      part.mapped = {std::shared_ptr<std::byte>(), opening.memory};
    } else if (card.shareable.bytes > 0) {
      if (!card.shareable.holds(opening.registered[other].bytes)) throw outside(other);
      const auto all = map_shareable(descriptors[other], card.shareable.bytes);
      part.mapped = {all, all.get() + card.shareable.offset};
    } else {
      if (const auto why = card.process.unsupported_reason()) throw Error(ErrorKind::kTransport, *why);
      part.process = card.process;
      part.address = card.address;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::unique_ptr<RemoteMemory> open_shm(const WindowOpening& opening, std::string& unsupported_reason) {
  const int rank = opening.group.rank(), size = opening.group.size();
  auto shareable = find_shareable(opening.memory, opening.own.bytes);
  HostHandle own{shared_memory_node(),
                 usable_cores(),
                 shm::Process::own(),
                 reinterpret_cast<std::uint64_t>(opening.memory),
                 {},
                 ShmTransport::unsupported_reason(size).value_or("")};
  if (shareable) own.shareable = {shareable->bytes, shareable->offset};
  std::vector<HostHandle> cards;
  std::vector<std::string> cores;
  for (const std::string& text :
       store_allgather(opening.store, "cards", rank, size, opening.timeout, kPurpose, own.text())) {
    cards.push_back(HostHandle::from(text));
    cores.push_back(cards.back().cores);
  }
  unsupported_reason = unsupported_reason_of(cards);
  if (!unsupported_reason.empty()) return nullptr;
  std::unique_ptr<RemoteMemory> made;
  std::string own_reason;
  try {
    auto control = share_memory(opening.store, "control", rank, size, shm::ShmWindow::control_bytes(size),
                                opening.timeout);
    // A rank that has none to share passes on an empty file, so that all take part alike.
    if (!shareable) shareable = find_shareable(allocate_shareable(1).get(), 1);
    made = std::make_unique<shm::ShmWindow>(std::move(control), rank,
                                            parts_of(opening, cards, shareable->descriptor),
                                            AdaptiveWait::is_crowd(size, count_cores(cores)));
  } catch (const Error& error) {
    if (ends_a_wait(error.kind())) throw;
    own_reason = error.what();
  }
  if (const auto why = first_unsupported_reason(opening.store, "opened", rank, size, opening.timeout,
                                                kPurpose, own_reason)) {
    unsupported_reason = *why;
    return nullptr;
  }
  return made;
}

std::unique_ptr<MessageWindow> message_window(const WindowOpening& opening);

std::optional<std::string> without_mpi(int) {
  if (setting("ALTORCH_MPI") == "none") return "ALTORCH_MPI=none refuses MPI";
  return std::nullopt;
}

std::unique_ptr<RemoteMemory> open_mpi(const WindowOpening& opening, std::string& unsupported_reason) {
  NativeWindows* const native = opening.links.native_windows();
  if (!native) {
    unsupported_reason = std::string("the group's messages go over ") + opening.links.transport();
    return nullptr;
  }
  const int rank = opening.group.rank(), size = opening.group.size();
  const auto agree = [&](const char* key, const std::string& own_reason) {
    const auto why =
        first_unsupported_reason(opening.store, key, rank, size, opening.timeout, kPurpose, own_reason);
    if (why) unsupported_reason = *why;
    return !why;
  };
  std::string unable = native->windows_unsupported_reason().value_or("");
  if (unable.empty() && !opening.named) unable = native->windows_weakness().value_or("");
  if (!agree("able", unable)) return nullptr;
  // What MPI reduces and what it does not would not be atomic with each other.
  const auto is_reduced = [&](const Registered& each) { return native->windows_reduce(each.dtype); };
  const bool all_reduced = std::all_of(opening.registered.begin(), opening.registered.end(), is_reduced);
  std::unique_ptr<RemoteMemory> made;
  std::string own_reason;
  try {
    made = native->open_window({opening.number, opening.memory, opening.registered,
                                all_reduced ? nullptr : message_window(opening), opening.group.name(),
                                opening.timeout, [&] { opening.store.check_peers(); }});
  } catch (const Error& error) {
    if (ends_a_wait(error.kind())) throw;
    own_reason = error.what();
  }
  if (!agree("opened", own_reason)) return nullptr;
  return made;
}

std::unique_ptr<MessageWindow> message_window(const WindowOpening& opening) {
  return std::make_unique<MessageWindow>(opening.links.channel(),
                                         first_window_tag(opening.group, opening.number), opening.memory,
                                         opening.own.bytes);
}

std::unique_ptr<RemoteMemory> open_messages(const WindowOpening& opening, std::string&) {
  return message_window(opening);
}

constexpr std::array kRows = {
    WindowRow{"shm", ShmTransport::unsupported_reason, open_shm},
    WindowRow{"mpi", without_mpi, open_mpi},
    WindowRow{"messages", [](int) { return std::optional<std::string>(); }, open_messages},
};

}  // namespace

std::span<const WindowRow> window_rows() { return kRows; }

const WindowRow& window_row_named(std::string_view name, bool on_gpu) {
  return *std::ranges::find(on_gpu ? device_window_rows() : window_rows(), name, &WindowRow::name);
}

std::int64_t first_window_tag(const Communicator& group, int number) {
  return group.tags().window(number, /*each=*/MessageWindow::kTags + 1);
}

}  // namespace altorch
