#include "backend/gloo_backend.h"

#include "backend/gloo_channel.h"

namespace altorch::backend {
namespace {

class GlooLinks : public Links {
 public:
  explicit GlooLinks(std::unique_ptr<GlooChannel> channel) : channel_(std::move(channel)) {}
  const char* transport() const override { return "gloo"; }
  Channel& channel() override { return *channel_; }
  WholeCollectives* collectives() override { return nullptr; }
  void mark_broken() override {}  // the channel gives no buffer back that Gloo may touch

 private:
  const std::unique_ptr<GlooChannel> channel_;
};

std::shared_ptr<Communicator> join_over_gloo(Rendezvous& group, const GlooFactory& factory) {
  const GroupSettings& settings = group.settings();
  if (settings.size == 1) return join_group(group);  // which needs no transport
  const double seconds = std::chrono::duration<double>(settings.timeout).count();
  const auto gloo = factory(group.c10d(), settings.rank, settings.size, seconds);
  auto channel = std::make_unique<GlooChannel>(gloo, settings.rank, settings.job_ranks);
  CommunicatorSettings made{settings.name, settings.job_ranks, group.store(), group.watch()};
  return std::make_shared<Communicator>(std::move(made), std::make_unique<GlooLinks>(std::move(channel)));
}

}  // namespace

GlooBackend::GlooBackend(GroupSettings settings, std::shared_ptr<Communicator> communicator,
                         c10::intrusive_ptr<AlOptions> options, GlooFactory factory)
    : AlBackend(std::move(settings), std::move(communicator), std::move(options)),
      factory_(std::move(factory)) {}

c10::intrusive_ptr<AlBackend> GlooBackend::make_child(Rendezvous& group,
                                                      c10::intrusive_ptr<AlOptions> options) {
  return create_gloo_backend(group, std::move(options), factory_);
}

std::shared_ptr<Communicator> GlooBackend::join(Rendezvous& group) { return join_over_gloo(group, factory_); }

c10::intrusive_ptr<AlBackend> create_gloo_backend(Rendezvous& group, c10::intrusive_ptr<AlOptions> options,
                                                  GlooFactory factory) {
  auto communicator = join_over_gloo(group, factory);
  return c10::make_intrusive<GlooBackend>(group.settings(), std::move(communicator), std::move(options),
                                          std::move(factory));
}

}  // namespace altorch::backend
