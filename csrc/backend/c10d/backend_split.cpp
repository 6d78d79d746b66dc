// SPDX-License-Identifier: BSD-3-Clause
// The groups that come out of a group: those that torch splits off, the one that carries GPUs' host
// calls, and the ranks that are left of it.
#include <algorithm>

#include "backend/c10d/backend.h"
#include "backend/c10d/errors.h"
#include "backend/store/store.h"
#include "rendezvous/survivors.h"

namespace altorch::backend {
namespace {

constexpr std::chrono::milliseconds kBetweenQuestions{500};  // to the store, about ranks of other nodes

AlBackend::MergeMaker& merge_maker() {
  static auto* maker = new AlBackend::MergeMaker();  // never freed: it may belong to Python, which ends
  return *maker;
}

// Where this rank cannot make its part, the others learn it instead of waiting for their timeout.
template <typename Make>
auto telling_of_failure(Rendezvous& group, const Make& make) {
  try {
    return make();
  } catch (const std::exception& error) {
    group.fail(error.what());
    throw;
  }
}

}  // namespace

void AlBackend::set_merge_maker(MergeMaker maker) { merge_maker() = std::move(maker); }

c10::intrusive_ptr<c10d::Backend> AlBackend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                   const c10::intrusive_ptr<Options>& options,
                                                   const int& rank, const int& size) {
  if (store && last_merge_store_.lock() == store) return last_merge_.lock();  // as of a split
  return guarded([&]() -> c10::intrusive_ptr<c10d::Backend> {
    Membership merged;
    merged.name = options && !options->group_name.empty() ? options->group_name
                                                          : communicator_->membership().name + ":merge";
    merged.rank = rank;
    merged.timeout = clamp_timeout(options ? options->timeout : options_->timeout);
    if (rank < 0 || rank >= size) {
      throw Error(ErrorKind::kInvalidArgument, "altorch: group '" + merged.name + "': merge: rank " +
                                                   std::to_string(rank) + " of " + std::to_string(size) +
                                                   " ranks; more of them have come than there shall be");
    }
    // The ranks may belong to several jobs, so their global ranks do not identify them. They are
    // numbered anew.
    for (int each = 0; each < size; ++each) merged.global_ranks.push_back(each);
    auto* own = dynamic_cast<AlOptions*>(options.get());  // torch's own cast leaks what it cannot cast
    const auto [made, unsupported_reason] =
        merge_maker()(store, merged, own ? c10::intrusive_ptr<AlOptions>::reclaim_copy(own) : options_);
    if (!made) throw Error(ErrorKind::kTransport, unsupported_reason);
    last_merge_store_ = c10::weak_intrusive_ptr<c10d::Store>(store);
    last_merge_ = c10::weak_intrusive_ptr<c10d::Backend>(made);
    return made;
  });
}

c10::intrusive_ptr<c10d::Backend> AlBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                   const std::vector<int>& ranks,
                                                   const c10::intrusive_ptr<Options>& options) {
  // torch 2.11 asks once for each type of device, with one store, and keeps the first answer.
  if (store && last_split_store_.lock() == store) return last_split_.lock();
  auto made = guarded([&] { return make_split(store, ranks, options); });
  last_split_store_ = c10::weak_intrusive_ptr<c10d::Store>(store);
  last_split_ = c10::weak_intrusive_ptr<c10d::Backend>(made);
  return made;
}

c10::intrusive_ptr<c10d::Backend> AlBackend::make_split(const c10::intrusive_ptr<c10d::Store>& store,
                                                        const std::vector<int>& ranks,
                                                        const c10::intrusive_ptr<Options>& options) {
  const int split = splits_++;
  const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
  if (mine == ranks.end()) {
    split_nccl(nullptr, nccl::kNoColor, 0, 0);
    return nullptr;
  }
  const Membership& parent = communicator_->membership();
  Membership child;
  child.name = options && !options->group_name.empty() ? options->group_name
                                                       : parent.name + "/split" + std::to_string(split);
  child.rank = static_cast<int>(mine - ranks.begin());
  // Disjoint groups may be split off in one call.
  std::string key = parent.key + "/split" + std::to_string(split);
  for (const int rank : ranks) {
    check_rank(rank, "a member of the split");
    child.global_ranks.push_back(parent.global_ranks[static_cast<std::size_t>(rank)]);
    key += "." + std::to_string(rank);
  }
  const auto* asked = dynamic_cast<const AlOptions*>(options.get());
  const AlOptions& child_options = asked ? *asked : *options_;
  child.timeout = clamp_timeout(options ? options->timeout : options_->timeout);
  Rendezvous group(store, std::move(child), key, child_options);
  return telling_of_failure(group, [&] {
    auto made = c10::make_intrusive<AlBackend>(group, transport_, child_options);
    if (group.group().size() == 1) {
      split_nccl(nullptr, nccl::kNoColor, 0, 0);
    } else {
      split_nccl(made.get(), ranks.front(), group.group().rank, group.group().size());
    }
    return made;
  });
}

// Faster than a communicator from nothing. All ranks of the group made theirs together, so either
// all have one or none.
void AlBackend::split_nccl(AlBackend* child, int color, int key, int size) {
  for (const auto& group : cuda_groups()) {
    const auto parent = group->nccl_communicator();
    if (!parent || group->memory().suspended) continue;
    const auto& options = child ? *child->options_ : *options_;
    auto part = parent->split(color, key, group->device().index(), size, options.timeout, options.nccl);
    ++nccl_splits_;
    if (!child) return;
    child->inherited_on_ = group->device().index();
    child->inherited_nccl_ = std::move(part);
    return;
  }
}

std::shared_ptr<Communicator> AlBackend::make_carrier(const std::vector<int>& ranks) {
  const Membership& whole = communicator_->membership();
  Membership carrier = whole;
  carrier.name += " (host_staged)";
  carrier.timeout = options_->timeout;
  carrier.is_job = false;
  std::string key = carrier.key + "/host_staged";
  if (static_cast<int>(ranks.size()) < whole.size()) {
    const auto part_of = [&](const std::vector<int>& all) {
      std::vector<int> part;
      for (const int rank : ranks) part.push_back(all[static_cast<std::size_t>(rank)]);
      return part;
    };
    carrier.rank = static_cast<int>(std::ranges::find(ranks, whole.rank) - ranks.begin());
    carrier.global_ranks = part_of(whole.global_ranks);
    if (!whole.before.empty()) carrier.before = part_of(whole.before);
    key += "/" + std::to_string(ranks.front());  // parts are disjoint
    carrier.name = whole.name + " (rail of rank " + std::to_string(ranks.front()) + ")";
  }
  const auto store = dynamic_cast<C10dStore&>(communicator_->store()).c10d();
  Rendezvous group(store, std::move(carrier), key, *options_);
  return telling_of_failure(group, [&] { return join(group, *transport_); });
}

c10::intrusive_ptr<c10d::Store> AlBackend::callers_store() const {
  return guarded([&] { return dynamic_cast<C10dStore&>(communicator_->store()).callers(); });
}

bool AlBackend::is_lost(int rank) const {
  const int global = communicator_->global_ranks().at(static_cast<std::size_t>(rank));
  auto* watch = communicator_->watch();
  return watch && watch->liveness.check({&global, 1}, /*ask_store=*/false).has_value();
}

template <typename Ask>
auto AlBackend::ask_survivors(std::chrono::milliseconds timeout, const c10::intrusive_ptr<c10d::Store>& store,
                              Ask&& ask) {
  return guarded([&] {
    const auto group = communicator_;
    std::optional<C10dStore> given;
    if (store) given.emplace(store, group->membership().key);
    SurvivorQuery query;
    query.key = "survivors";
    query.rank = group->rank();
    query.size = group->size();
    query.timeout = timeout;
    auto next_question = std::chrono::steady_clock::now();
    query.is_dead = [&](int rank) {
      const auto now = std::chrono::steady_clock::now();
      if (!given && group->watch() && now >= next_question) {
        next_question = now + kBetweenQuestions;
        group->watch()->liveness.check({}, /*ask_store=*/true);
      }
      return is_lost(rank);
    };
    try {
      return ask(given ? *given : group->store(), query);
    } catch (const Error& error) {
      throw error.with_prefix("altorch: group '" + group->name() + "': ");
    }
  });
}

Survivors AlBackend::find_survivors(std::chrono::milliseconds timeout,
                                    const c10::intrusive_ptr<c10d::Store>& store) {
  return ask_survivors(timeout, store, [](KeyValueStore& keys, const SurvivorQuery& query) {
    return altorch::find_survivors(keys, query);
  });
}

bool AlBackend::all_succeeded(std::chrono::milliseconds timeout, const Survivors& left, bool made,
                              const c10::intrusive_ptr<c10d::Store>& store) {
  return ask_survivors(timeout, store, [&](KeyValueStore& keys, const SurvivorQuery& query) {
    return altorch::all_succeeded(keys, query, left, made);
  });
}

}  // namespace altorch::backend
