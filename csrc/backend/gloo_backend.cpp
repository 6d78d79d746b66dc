#include "backend/gloo_backend.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "backend/gloo_channel.h"
#include "backend/store.h"

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

std::shared_ptr<Communicator> join_over_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                             const GroupSettings& settings, bool whole_job,
                                             const GlooFactory& factory) {
  auto keys = std::make_shared<C10dStore>(store, settings.key_prefix);
  if (settings.size == 1) return join_group(settings, keys);  // which needs no transport
  auto watch = whole_job ? watch_job(keys, settings.rank, settings.size, settings.timeout) : current_watch();
  const double seconds = std::chrono::duration<double>(settings.timeout).count();
  const auto gloo = factory(store, settings.rank, settings.size, seconds);
  auto channel = std::make_unique<GlooChannel>(gloo, settings.rank, settings.job_ranks);
  CommunicatorSettings made{settings.name, settings.job_ranks, std::move(keys), std::move(watch)};
  return std::make_shared<Communicator>(std::move(made), std::make_unique<GlooLinks>(std::move(channel)));
}

}  // namespace

GlooBackend::GlooBackend(GroupSettings settings, std::shared_ptr<Communicator> communicator,
                         c10::intrusive_ptr<AlOptions> options, GlooFactory factory)
    : AlBackend(std::move(settings), std::move(communicator), std::move(options)),
      factory_(std::move(factory)) {}

c10::intrusive_ptr<c10d::Backend> GlooBackend::make_child(const GroupSettings& settings,
                                                          c10::intrusive_ptr<AlOptions> options,
                                                          const c10::intrusive_ptr<c10d::Store>& store) {
  options->timeout = settings.timeout;
  return c10::make_intrusive<GlooBackend>(settings, join(settings, store), std::move(options), factory_);
}

std::shared_ptr<Communicator> GlooBackend::join(const GroupSettings& settings,
                                                const c10::intrusive_ptr<c10d::Store>& store) {
  // Gloo's own keys: the channels of disjoint groups may be made at once, with one store for all.
  auto own_keys = c10::make_intrusive<c10d::PrefixStore>("altorch/" + settings.key_prefix, store);
  return join_over_gloo(own_keys, settings, /*whole_job=*/false, factory_);
}

c10::intrusive_ptr<c10d::Backend> create_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const GroupSettings& settings,
                                                      c10::intrusive_ptr<AlOptions> options, bool whole_job,
                                                      GlooFactory factory) {
  options = c10::make_intrusive<AlOptions>(*options);  // the caller may give the same to several groups
  options->timeout = settings.timeout;
  options->group_name = settings.name;
  auto communicator = join_over_gloo(store, settings, whole_job, factory);
  return c10::make_intrusive<GlooBackend>(settings, std::move(communicator), std::move(options),
                                          std::move(factory));
}

}  // namespace altorch::backend
