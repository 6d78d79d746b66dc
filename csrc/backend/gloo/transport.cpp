#include "backend/gloo/transport.h"

#include <algorithm>

#include "backend/gloo/channel.h"
#include "backend/rendezvous.h"
#include "common/fnv.h"
#include "common/meeting.h"

namespace altorch::backend {
namespace {

// The same on all ranks of a group, and no other group's.
std::uint64_t group_id(const Membership& group) {
  Fnv hash;
  hash.add(group.key);
  for (const int rank : group.global_ranks) hash.add(static_cast<std::uint64_t>(rank) + 256);
  return hash.value();
}

}  // namespace

std::unique_ptr<Links> GlooTransport::open(const Membership& group, KeyValueStore& store) {
  auto mesh = group.is_job || group.is_apart ? nullptr : GlooMesh::current();
  if (!mesh) {
    // All have just met. Gloo tries several times as long as it is told, and looks after nobody meanwhile.
    constexpr double kMost = 15;
    const double seconds = std::min(std::chrono::duration<double>(group.timeout).count(), kMost);
    const auto addresses = meet(store, "gloo/addresses", group.rank, group.size(), group.timeout,
                                "to connect group '" + group.name + "'", address_());
    const auto gloo =
        factory_(dynamic_cast<MeetingStore&>(store).callers(), group.rank, group.size(), seconds, addresses);
    mesh = std::make_shared<GlooMesh>(gloo, group.rank, group.global_ranks);
    if (group.is_job) GlooMesh::set_current(mesh);
    if (group.is_job) founded_ = mesh;
  }
  return std::make_unique<MessageLinks>(
      "gloo", std::make_unique<GlooChannel>(mesh, group_id(group), group.rank, group.global_ranks));
}

void GlooTransport::group_ends(const Membership& group) {
  const auto mesh = group.is_job ? founded_.lock() : nullptr;
  if (mesh) mesh->retire();
}

}  // namespace altorch::backend
