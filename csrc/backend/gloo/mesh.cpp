// SPDX-License-Identifier: BSD-3-Clause
#include "backend/gloo/mesh.h"

#include <unistd.h>

#include <algorithm>

namespace altorch::backend {
namespace {

constexpr std::chrono::seconds kFarewell{5};

struct Current {
  std::mutex mutex;
  std::weak_ptr<GlooMesh> mesh;
};
Current& the_current() {
  static auto* current = new Current();
  return *current;
}

}  // namespace

GlooMesh::GlooMesh(const c10::intrusive_ptr<c10d::Backend>& gloo, int mesh_rank, std::vector<int> job_ranks)
    : mesh_rank_(mesh_rank), job_ranks_(std::move(job_ranks)), process_(getpid()), peers_(job_ranks_.size()) {
  GlooListener& listener = *this;
  for (std::size_t other = 0; other < peers_.size(); ++other) {
    if (static_cast<int>(other) == mesh_rank_) continue;
    peers_[other] = std::make_unique<GlooPeer>(gloo, static_cast<int>(other), job_ranks_[other], listener);
  }
  for (const auto& each : peers_) {
    if (each) each->start();
  }
}

GlooMesh::~GlooMesh() {
  if (getpid() != process_) {  // forked: the threads stayed behind, with their locks in any state
    for (auto& each : peers_) static_cast<void>(each.release());
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + kFarewell;
  for (const auto& each : peers_) {
    if (each) each->flush(deadline);
  }
  for (const auto& each : peers_) {
    if (each) each->stop();
  }
}

std::shared_ptr<GlooMesh> GlooMesh::current() {
  const std::lock_guard lock(the_current().mutex);
  return the_current().mesh.lock();
}

void GlooMesh::set_current(const std::shared_ptr<GlooMesh>& mesh) {
  const std::lock_guard lock(the_current().mutex);
  the_current().mesh = mesh;
}

void GlooMesh::forget_current() {
  const std::lock_guard lock(the_current().mutex);
  if (the_current().mesh.lock().get() == this) the_current().mesh.reset();
}

std::vector<int> GlooMesh::mesh_ranks_of(const std::vector<int>& job_ranks) const {
  std::vector<int> mesh_ranks;
  for (const int rank : job_ranks) {
    const auto found = std::find(job_ranks_.begin(), job_ranks_.end(), rank);
    if (found == job_ranks_.end()) {
      throw Error(ErrorKind::kInternal, "altorch: rank " + std::to_string(rank) +
                                            " is not among those that the job's first group connects");
    }
    mesh_ranks.push_back(static_cast<int>(found - job_ranks_.begin()));
  }
  return mesh_ranks;
}

std::shared_ptr<GlooInbox> GlooMesh::inbox(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  auto& found = inboxes_[id];
  if (!found) found = std::make_shared<GlooInbox>(*this);
  return found;
}

std::shared_ptr<GlooInbox> GlooMesh::enter(std::uint64_t id, const std::vector<int>& mesh_ranks) {
  auto opened = inbox(id);
  opened->open(mesh_ranks, mesh_rank_);
  return opened;
}

void GlooMesh::leave(std::uint64_t id, const std::vector<int>& mesh_ranks) {
  const auto closed = inbox(id);
  closed->close();
  for (const int each : mesh_ranks) {
    if (each != mesh_rank_) peer(each).leave(id);
  }
  forget_if_over(id, *closed);
}

// A closed inbox stays until all peers have left the group: it drops what they sent before.
void GlooMesh::forget_if_over(std::uint64_t id, const GlooInbox& inbox) {
  if (!inbox.is_over()) return;
  const std::lock_guard lock(mutex_);
  inboxes_.erase(id);
}

void GlooMesh::arrived(const GlooArrival& arrival) { inbox(arrival.group)->arrived(arrival); }

void GlooMesh::left(int mesh_rank, std::uint64_t group) {
  const auto found = inbox(group);
  found->left(mesh_rank);
  forget_if_over(group, *found);
}

void GlooMesh::lost(int) {
  std::vector<std::shared_ptr<GlooInbox>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, each] : inboxes_) all.push_back(each);
  }
  for (const auto& each : all) each->lost();
}

}  // namespace altorch::backend
