#include "backend/gloo/backend.h"

#include "backend/gloo/channel.h"

namespace altorch::backend {
namespace {

// The same on all ranks of a group, and no other group's.
std::uint64_t group_id(const GroupSettings& settings) {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  for (const char character : settings.key_prefix) add(static_cast<unsigned char>(character));
  for (const int rank : settings.job_ranks) add(static_cast<std::uint64_t>(rank) + 256);
  return hash;
}

std::shared_ptr<Communicator> join_over_gloo(Rendezvous& group, const GlooFactory& factory,
                                             std::shared_ptr<GlooMesh>& founded) {
  const GroupSettings& settings = group.settings();
  if (settings.size == 1) return join_group(group);  // which needs no transport
  auto mesh = group.is_job() ? nullptr : GlooMesh::current();
  if (!mesh) {
    const double seconds = std::chrono::duration<double>(settings.timeout).count();
    const auto gloo = factory(group.c10d(), settings.rank, settings.size, seconds);
    mesh = std::make_shared<GlooMesh>(gloo, settings.rank, settings.job_ranks);
    if (group.is_job()) {
      GlooMesh::set_current(mesh);
      founded = mesh;
    }
  }
  auto channel = std::make_unique<GlooChannel>(mesh, group_id(settings), settings.rank, settings.job_ranks);
  Membership made{settings.name, settings.job_ranks, group.store(), group.watch()};
  return std::make_shared<Communicator>(std::move(made),
                                        std::make_unique<MessageLinks>("gloo", std::move(channel)));
}

}  // namespace

GlooBackend::GlooBackend(GroupSettings settings, std::shared_ptr<Communicator> communicator,
                         c10::intrusive_ptr<AlOptions> options, GlooFactory factory,
                         const std::shared_ptr<GlooMesh>& founded)
    : AlBackend(std::move(settings), std::move(communicator), std::move(options)),
      factory_(std::move(factory)),
      founded_(founded) {}

// All ranks destroy the job's first group between the same two calls, so that they agree which later groups
// share its connections, whoever still holds them.
GlooBackend::~GlooBackend() {
  if (const auto mesh = founded_.lock()) mesh->retire();
}

void GlooBackend::shutdown() {
  if (const auto mesh = founded_.lock()) mesh->retire();
  AlBackend::shutdown();
}

c10::intrusive_ptr<AlBackend> GlooBackend::make_child(Rendezvous& group,
                                                      c10::intrusive_ptr<AlOptions> options) {
  return create_gloo_backend(group, std::move(options), factory_);
}

std::shared_ptr<Communicator> GlooBackend::join(Rendezvous& group) {
  std::shared_ptr<GlooMesh> none;
  return join_over_gloo(group, factory_, none);
}

c10::intrusive_ptr<AlBackend> create_gloo_backend(Rendezvous& group, c10::intrusive_ptr<AlOptions> options,
                                                  GlooFactory factory) {
  options = own_options(*options, group.settings());
  std::shared_ptr<GlooMesh> founded;
  auto communicator = join_over_gloo(group, factory, founded);
  return c10::make_intrusive<GlooBackend>(group.settings(), std::move(communicator), std::move(options),
                                          std::move(factory), founded);
}

}  // namespace altorch::backend
