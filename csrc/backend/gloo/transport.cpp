// SPDX-License-Identifier: BSD-3-Clause
#include "backend/gloo/transport.h"

#include <algorithm>
#include <future>
#include <system_error>
#include <thread>

#include "backend/gloo/channel.h"
#include "backend/store/rendezvous.h"
#include "base/fnv.h"
#include "platform/fast_exit.h"
#include "platform/native_thread.h"
#include "rendezvous/store_allgather.h"

namespace altorch::backend {
namespace {

// The same on all ranks of a group, and no other group's.
std::uint64_t group_id(const Membership& group) {
  Fnv hash;
  hash.add(group.key);
  for (const int rank : group.global_ranks) hash.add(static_cast<std::uint64_t>(rank) + 256);
  return hash.value();
}

constexpr std::chrono::milliseconds kBetweenLooks{20}, kPeersReason{1000};

using Made = c10::intrusive_ptr<c10d::Backend>;

// Returns what `make` returns. It runs on a thread of its own, because Gloo does not notice dead
// peers while it connects. Throws what `make` throws, or the store's error about a peer that cannot
// come. After that error the thread goes on, until Gloo's own deadline.
Made made_while_all_live(std::function<Made()> make, KeyValueStore& store) {
  auto promise = std::make_shared<std::promise<Made>>();
  auto made = promise->get_future();
  // Threads of older Gloos inherit its name.
  start_native_thread(
      "gloo", [promise, make = std::move(make), counted = std::make_shared<DetachedThread>()]() mutable {
        try {
          promise->set_value(make());
        } catch (const std::system_error& error) {  // a thread of Gloo's own
          promise->set_exception(std::make_exception_ptr(
              Error(ErrorKind::kTransport, no_more_threads("gloo", error.code().value()))));
        } catch (...) {
          promise->set_exception(std::current_exception());
        }
        make = nullptr;  // it is Python's
      });
  while (made.wait_for(kBetweenLooks) != std::future_status::ready) store.check_peers();
  try {
    return made.get();
  } catch (const Error&) {
    throw;
  } catch (...) {
    // A connection failed. The peer may have failed before, and its reason says more.
    for (const auto until = std::chrono::steady_clock::now() + kPeersReason;
         std::chrono::steady_clock::now() < until; std::this_thread::sleep_for(kBetweenLooks))
      store.check_peers();
    throw;
  }
}

}  // namespace

std::unique_ptr<Links> GlooTransport::open(const Membership& group, KeyValueStore& store) {
  auto mesh = group.is_job || group.is_apart ? nullptr : GlooMesh::current();
  if (!mesh) {
    // All ranks have just met, so a short timeout is enough. Gloo tries for several times as long
    // as its timeout, and notices no dead peer meanwhile.
    constexpr double kMost = 15;
    const double seconds = std::min(std::chrono::duration<double>(group.timeout).count(), kMost);
    const auto addresses = store_allgather(store, "gloo/addresses", group.rank, group.size(), group.timeout,
                                           "to connect group '" + group.name + "'", address_());
    const auto gloo = made_while_all_live(
        [make = factory_, callers = dynamic_cast<RendezvousStore&>(store).callers(), rank = group.rank,
         size = group.size(), seconds, addresses] { return make(callers, rank, size, seconds, addresses); },
        store);
    mesh = std::make_shared<GlooMesh>(gloo, group.rank, group.global_ranks);
    if (group.is_job) GlooMesh::set_current(mesh);
    if (group.is_job) founded_ = mesh;
  }
  return std::make_unique<MessageLinks>(
      "gloo",
      std::make_unique<GlooChannel>(mesh, group_id(group), group.rank, group.global_ranks, group.deaths));
}

void GlooTransport::group_ends(const Membership& group) {
  const auto mesh = group.is_job ? founded_.lock() : nullptr;
  if (mesh) mesh->forget_current();
}

}  // namespace altorch::backend
