#include "backend/gloo_backend.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "backend/errors.h"
#include "backend/gloo_channel.h"
#include "backend/store.h"
#include "common/env.h"

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

struct Watch {
  std::mutex mutex;
  // Of the job; none when its first group was another backend's. The groups own it: it holds the store.
  std::weak_ptr<Liveness> liveness;
};

Watch& watch() {
  static auto* instance = new Watch();
  return *instance;
}

std::shared_ptr<Liveness> watch_over(const GroupSettings& settings,
                                     const std::shared_ptr<KeyValueStore>& keys, bool whole_job) {
  Watch& current = watch();
  const std::lock_guard lock(current.mutex);
  if (!whole_job) return current.liveness.lock();
  const auto patience = std::chrono::milliseconds(
      static_cast<std::int64_t>(1000 * numeric_setting("ALTORCH_BOOTSTRAP_SECONDS")));
  auto made =
      std::make_shared<Liveness>(keys, settings.rank, settings.size, std::min(settings.timeout, patience));
  current.liveness = made;
  return made;
}

std::shared_ptr<Communicator> join(const c10::intrusive_ptr<c10d::Store>& store,
                                   const GroupSettings& settings, bool whole_job,
                                   const GlooFactory& factory) {
  auto keys = std::make_shared<C10dStore>(store, settings.key_prefix);
  if (settings.size == 1) return join_group(settings, keys);  // which needs no transport
  auto liveness = watch_over(settings, keys, whole_job);
  const double seconds = std::chrono::duration<double>(settings.timeout).count();
  const auto gloo = factory(store, settings.rank, settings.size, seconds);
  auto channel = std::make_unique<GlooChannel>(gloo, settings.rank, settings.job_ranks);
  CommunicatorSettings made{settings.name, settings.job_ranks, std::move(keys), std::move(liveness)};
  return std::make_shared<Communicator>(std::move(made), std::make_unique<GlooLinks>(std::move(channel)));
}

}  // namespace

GlooBackend::GlooBackend(GroupSettings settings, std::shared_ptr<Communicator> communicator,
                         c10::intrusive_ptr<AlOptions> options, GlooFactory factory)
    : AlBackend(settings, std::move(communicator), std::move(options)),
      settings_(std::move(settings)),
      factory_(std::move(factory)) {}

c10::intrusive_ptr<c10d::Backend> GlooBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<Options>& options) {
  return guarded([&]() -> c10::intrusive_ptr<Backend> {
    const std::string split = "split" + std::to_string(splits_++);
    const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
    if (mine == ranks.end()) return nullptr;
    GroupSettings child = settings_;
    child.name = options && !options->group_name.empty() ? options->group_name : settings_.name + "/" + split;
    child.rank = static_cast<int>(mine - ranks.begin());
    child.size = static_cast<int>(ranks.size());
    child.timeout = options ? options->timeout : getBackendOptions()->timeout;
    child.job_ranks.clear();
    std::string members;  // disjoint groups may be split off in one call, with one store for all
    for (const int rank : ranks) {
      if (rank < 0 || rank >= getSize()) {
        throw Error(ErrorKind::kInvalidArgument, "a member of the split is rank " + std::to_string(rank) +
                                                     " of the group, which has ranks 0 to " +
                                                     std::to_string(getSize() - 1));
      }
      child.job_ranks.push_back(settings_.job_ranks[static_cast<std::size_t>(rank)]);
      members += "." + std::to_string(child.job_ranks.back());
    }
    child.key_prefix += "/" + split + members;
    auto child_options = c10::make_intrusive<AlOptions>(child.timeout);
    child_options->group_name = child.name;
    return create_gloo_backend(c10::make_intrusive<c10d::PrefixStore>("altorch/" + split + members, store),
                               child, std::move(child_options), false, factory_);
  });
}

c10::intrusive_ptr<c10d::Backend> create_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const GroupSettings& settings,
                                                      c10::intrusive_ptr<AlOptions> options, bool whole_job,
                                                      GlooFactory factory) {
  options->timeout = settings.timeout;
  auto communicator = join(store, settings, whole_job, factory);
  return c10::make_intrusive<GlooBackend>(settings, std::move(communicator), std::move(options),
                                          std::move(factory));
}

}  // namespace altorch::backend
