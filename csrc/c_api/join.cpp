// SPDX-License-Identifier: BSD-3-Clause
#include "c_api/join.h"

#include <mutex>

#include "base/env.h"
#include "c_api/callback_store.h"
#include "health/liveness_store.h"
#include "reduction/exact_mode.h"
#include "rendezvous/agreement.h"
#include "rendezvous/commit_decision.h"
#include "rendezvous/first_allgather.h"
#include "runtime/progress.h"
#include "trace/job_watch.h"
#include "transports/links.h"
#include "transports/loopback/channel.h"
#include "transports/shm/transport.h"

namespace altorch {
namespace {

// Shared memory is the only transport: Gloo needs torch's classes.
class NoTransport : public Transport {
 public:
  std::unique_ptr<Links> open(const Membership&, KeyValueStore&) override {
    throw Error(ErrorKind::kUnsupported,
                "its ranks cannot share memory (they are on several nodes, or ALTORCH_SHM_BYTES is 0), and "
                "without an "
                "extension for this torch altorch has nothing else; install an altorch that serves it");
  }
};

// The watch that the groups of this process share; they own it.
std::weak_ptr<JobWatch>& current_watch() {
  static auto* watch = new std::weak_ptr<JobWatch>();
  return *watch;
}

std::mutex& current_mutex() {
  static auto* mutex = new std::mutex();
  return *mutex;
}

std::string local_problem() {
  if (!ProgressThread::usable())
    return "this process was forked from one that had a group; start it with the 'spawn' method";
  try {
    if (const auto error = wrong_setting()) return error->what();
    ProgressThread::instance();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A rank's fields: what is wrong on it, its process, the watch that it has, its settings.
constexpr std::size_t kProcess = 1, kWatch = kProcess + ProcessId::kFields, kSettings = kWatch + 1;

void compare(const std::vector<Fields>& ranks, const std::vector<int>& names) {
  std::vector<Fields> settings;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].size() < kSettings) throw Error(ErrorKind::kInternal, "what a rank tells is too short");
    if (!ranks[i][0].empty())
      throw Error(ErrorKind::kInvalidArgument,
                  "on global rank " + std::to_string(names[i]) + ", " + ranks[i][0]);
    settings.emplace_back(ranks[i].begin() + kSettings, ranks[i].end());
  }
  if (const auto error = disagreement(settings, names)) throw *error;
}

std::shared_ptr<JobWatch> watch_over(const std::vector<Fields>& ranks, const Membership& group,
                                     const altorch_store& store) {
  const std::lock_guard lock(current_mutex());
  auto watch = current_watch().lock();
  bool is_shared = watch && !group.is_job;
  LivenessSettings watched;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    is_shared = is_shared && ranks[i][kWatch] == watch->name;
    watched.members[group.global_ranks[i]] = ProcessId::from(ranks[i][kProcess], ranks[i][kProcess + 1]);
  }
  if (is_shared) return watch;
  watched.store = std::make_shared<CallbackStore>(store, group.key);
  watched.rank = group.global_ranks[static_cast<std::size_t>(group.rank)];
  watch = std::make_shared<JobWatch>(group.key, std::move(watched));
  if (group.is_job) current_watch() = watch;
  return watch;
}

}  // namespace

std::shared_ptr<Communicator> join_group(const altorch_store& store, const std::string& key,
                                         Membership group) {
  if (exact_setting()) {
    if (const auto error = exact_unsupported_reason(group.size())) throw Error(*error);
  }
  CallbackStore keys(store, "");
  Fields own = {local_problem()};
  for (const std::string& field : ProcessId::own().fields()) own.push_back(field);
  {
    const std::lock_guard lock(current_mutex());
    const auto watch = current_watch().lock();
    own.push_back(watch ? watch->name : "");
  }
  for (const std::string& field : settings_to_agree_on()) own.push_back(field);
  const FirstAllgather met = first_allgather(keys, "altorch/c_api/" + key, group.rank, group.size(),
                                             group.timeout, "to make group '" + group.name + "'", own);
  compare(met.infos, group.global_ranks);
  group.key = met.prefix;
  group.store = std::make_shared<CallbackStore>(store, met.prefix);
  group.watch = watch_over(met.infos, group, store);
  if (group.size() == 1) {
    auto links = std::make_unique<MessageLinks>("self", std::move(make_loopback_channels(1)[0]));
    return std::make_shared<Communicator>(group, std::move(links));
  }
  LivenessStore watched(*group.store, liveness_of(group.watch), group.global_ranks);
  std::shared_ptr<Communicator> made;
  std::string failure;
  try {
    ShmTransport transport(std::make_shared<NoTransport>());
    made = std::make_shared<Communicator>(group, transport.open(group, watched));
  } catch (const Error& error) {
    failure = error.what();
  }
  const std::string aborted =
      decide_commit(watched, "made", group.rank, group.size(), group.timeout, failure);
  if (!aborted.empty()) throw Error(ErrorKind::kTransport, aborted);
  return made;
}

}  // namespace altorch
