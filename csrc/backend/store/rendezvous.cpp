// SPDX-License-Identifier: BSD-3-Clause
#include "backend/store/rendezvous.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "backend/recorder/torch_recorder.h"
#include "base/env.h"
#include "bootstrap/probes.h"
#include "reduction/exact_mode.h"
#include "rendezvous/agreement.h"
#include "rendezvous/commit_decision.h"
#include "rendezvous/first_allgather.h"
#include "rendezvous/store_allgather.h"
#include "runtime/progress.h"
#include "select/rules.h"

namespace altorch::backend {
namespace {

constexpr std::chrono::seconds kFarewell{5};
constexpr std::chrono::seconds kStoreTimeout{60};  // of threads that have nothing else to do

// The watch of this process's groups of today; they own it.
struct Current {
  std::mutex mutex;
  std::weak_ptr<JobWatch> watch;
};

Current& current() {
  static auto* instance = new Current();
  return *instance;
}

std::shared_ptr<JobWatch> current_watch() {
  const std::lock_guard lock(current().mutex);
  return current().watch.lock();
}

std::string knob(const char* name, int value) {
  const bool is_set = value != nccl::Config::kUndefined;
  return std::string("pg_options.") + name + "=" + (is_set ? std::to_string(value) : "");
}

Fields to_agree_on(const AlOptions& options) {
  Fields fields = settings_to_agree_on();
  fields.push_back(knob("min_ctas", options.nccl.min_ctas));
  fields.push_back(knob("max_ctas", options.nccl.max_ctas));
  fields.push_back(knob("cga_cluster_size", options.nccl.cga_cluster_size));
  fields.push_back(knob("split_share", options.nccl.split_share));
  fields.push_back(std::string("pg_options.deterministic=") + (options.exact ? kExactMode : ""));
  return fields;
}

// A rank reports in the allgather what is wrong here, so that no rank waits for one that has
// refused.
std::optional<Error> complaint(const Membership& group, const AlOptions& options) {
  if (!ProgressThread::usable())
    return Error(ErrorKind::kInvalidArgument,
                 "this process was forked from one that had a group; destroy the groups (and drop their "
                 "Works) before the fork, "
                 "or start it with the 'spawn' method");
  if (const auto error = wrong_setting()) return *error;
  if (const auto error = wrong_recorder_size()) return *error;
  if (options.exact || exact_setting()) {
    if (auto error = exact_unsupported_reason(group.size())) return error;
  }
  try {
    Rules();
    ProgressThread::instance();  // no call of the group then fails because a thread cannot be started
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Fields of a complaint, which come first: what is wrong, and the ErrorKind.
constexpr std::size_t kComplaint = 2;
// Behind what says which process it is.
constexpr std::size_t kWatchName = ProcessId::kFields, kWatchRank = kWatchName + 1;

Fields identity_of_this_process(const JobWatch* watch) {
  Fields identity = ProcessId::own().fields();
  identity.push_back(watch ? watch->name : "");
  identity.push_back(watch ? std::to_string(watch->liveness.settings().rank) : "");
  return identity;
}

Fields slice(const Fields& fields, std::size_t begin, std::size_t count) {
  if (fields.size() < begin + count) throw Error(ErrorKind::kInternal, "a rank's word is too short");
  const auto first = fields.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

// The fields that a rank sends: its complaint, what must agree, the id of its process, and the
// caller's own.
Rendezvous::Rendezvous(const c10::intrusive_ptr<c10d::Store>& store, Membership group, const std::string& key,
                       const AlOptions& options, const Fields& word, std::size_t agreed,
                       const std::vector<ProcessId>& processes)
    : group_(std::move(group)), making_(group_.is_job ? nullptr : current_watch()) {
  const GroupMaking::Wait wait(making_);
  creation_trace_ = std::make_unique<CreationTrace>(group_, group_.is_job ? nullptr : current_watch());
  lease_ = StoreWorker::lease(store);  // before the complaint, which it carries
  const std::string purpose = "to make group '" + group_.name + "'";
  const auto watch = current_watch();
  const Fields identity = identity_of_this_process(watch.get());
  const auto wrong = complaint(group_, options);
  Fields full = {wrong ? wrong->what() : "",
                 std::to_string(static_cast<int>(wrong ? wrong->kind() : ErrorKind::kInternal))};
  full.insert(full.end(), word.begin(), word.begin() + static_cast<std::ptrdiff_t>(agreed));
  const Fields own = to_agree_on(options);
  full.insert(full.end(), own.begin(), own.end());
  const std::size_t agreed_end = full.size();
  full.insert(full.end(), identity.begin(), identity.end());
  full.insert(full.end(), word.begin() + static_cast<std::ptrdiff_t>(agreed), word.end());

  // Processes that were watched before are watched meanwhile, too, under the global ranks that they
  // had then.
  C10dStore keys(store, "");
  const bool is_first = group_.is_job && group_.before.empty();
  if (!processes.empty()) make_watch(processes, store, "altorch/" + key + "/watch");
  LivenessStore checked(keys,
                        liveness_of(group_.watch ? group_.watch
                                    : is_first   ? nullptr
                                                 : watch),
                        group_.before.empty() ? group_.global_ranks : group_.before);
  const FirstAllgather met =
      first_allgather(checked, "altorch/" + key, group_.rank, group_.size(), group_.timeout, purpose, full);
  if (const auto error = unsupported_reason(met.infos, agreed_end)) {
    if (group_.is_job) leave_in_turn(checked, met.prefix + "/refused", group_.rank, group_.size(), kFarewell);
    throw error->with_prefix("altorch: group '" + group_.name + "': ");
  }
  std::vector<Fields> identities;
  for (const Fields& row : met.infos) {
    const std::size_t rest = agreed_end + identity.size();
    identities.push_back(slice(row, agreed_end, identity.size()));
    words_.push_back(slice(row, rest, row.size() - std::min(rest, row.size())));
  }
  group_.key = met.prefix;
  group_.store = std::make_shared<C10dStore>(store, met.prefix);
  const auto callers = c10::make_intrusive<c10d::PrefixStore>(met.prefix, store);
  try {
    if (!group_.watch) choose_watch(identities, store);
  } catch (const Error& error) {
    fail(error.what());
    throw;
  }
  if (group_.watch) group_.deaths = group_.watch->liveness.known_deaths();
  if (!group_.is_apart) {
    const std::lock_guard lock(current().mutex);
    current().watch = group_.watch;
  }
  store_ =
      std::make_unique<RendezvousStore>(callers, lease_, *group_.store, group_.watch, group_.global_ranks);
}

// The same on every rank: the first that complains, or the first difference.
std::optional<Error> Rendezvous::unsupported_reason(const std::vector<Fields>& words,
                                                    std::size_t agreed_end) const {
  std::vector<Fields> to_compare;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Fields complaint = slice(words[i], 0, kComplaint);
    const std::string& wrong = complaint[0];
    if (!wrong.empty()) {
      const bool is_failure = complaint[1] == std::to_string(static_cast<int>(ErrorKind::kTransport));
      return Error(is_failure ? ErrorKind::kTransport : ErrorKind::kInvalidArgument,
                   "on global rank " + std::to_string(group_.global_ranks[i]) + ", " + wrong);
    }
    to_compare.push_back(slice(words[i], kComplaint, std::min(agreed_end, words[i].size()) - kComplaint));
  }
  return disagreement(to_compare, group_.global_ranks);
}

// The watch that all members have in common, under the numbers that they have here; where they have
// none, a new one, of these ranks alone.
void Rendezvous::choose_watch(const std::vector<Fields>& identities,
                              const c10::intrusive_ptr<c10d::Store>& store) {
  const std::string& name = identities.front()[kWatchName];
  bool is_shared = !group_.is_job && !name.empty();
  std::vector<ProcessId> processes;
  for (std::size_t i = 0; i < identities.size(); ++i) {
    is_shared = is_shared && identities[i][kWatchName] == name &&
                identities[i][kWatchRank] == std::to_string(group_.global_ranks[i]);
    processes.push_back(ProcessId::from(identities[i][0], identities[i][1]));
  }
  group_.is_apart = !group_.is_job && !is_shared;
  group_.watch = current_watch();
  if (!is_shared || !group_.watch || group_.watch->name != name) make_watch(processes, store, group_.key);
}

void Rendezvous::make_watch(const std::vector<ProcessId>& processes,
                            const c10::intrusive_ptr<c10d::Store>& store, const std::string& name) {
  LivenessSettings watched;
  for (std::size_t i = 0; i < processes.size(); ++i) watched.members[group_.global_ranks[i]] = processes[i];
  watched.store = std::make_shared<C10dStore>(store, name);
  watched.retrying =
      std::make_shared<C10dStore>(c10::make_intrusive<c10d::PrefixStore>(name, store), name, kStoreTimeout);
  watched.rank = group_.global_ranks[static_cast<std::size_t>(group_.rank)];
  const char* master = std::getenv("MASTER_ADDR");
  watched.master = master ? master : "";
  const bool several_nodes = std::any_of(processes.begin(), processes.end(), [&](const ProcessId& process) {
    return process.node != processes.front().node;
  });
  if (several_nodes) {
    settle();
    watched.address = route_to(watched.master).address;
  }
  group_.watch = std::make_shared<JobWatch>(name, std::move(watched));
}

std::vector<std::string> Rendezvous::exchange(const std::string& key, const std::string& text,
                                              std::chrono::milliseconds timeout) {
  const GroupMaking::Wait wait(making_);
  return store_allgather(*store_, key, group_.rank, group_.size(), timeout,
                         "to make group '" + group_.name + "'", text);
}

void RendezvousStore::check_peers() {
  LivenessStore::check_peers();
  const auto now = std::chrono::steady_clock::now();
  if (now < next_question_) return;
  next_question_ = now + between_questions_;
  std::optional<std::string> why;
  try {
    why = try_get(kFailedKey);
  } catch (const Error&) {  // a store that does not answer is the affair of the requests that the group needs
  }
  if (why) throw Error(ErrorKind::kTransport, *why);
}

void Rendezvous::fail(const std::string& why) noexcept {
  try {
    KeyValueStore& keys = *group_.store;
    if (!keys.is_hosted() || keys.try_get(kFailedKey)) return;  // the first report is the cause of the others
    const int own = group_.global_ranks[static_cast<std::size_t>(group_.rank)];
    keys.set(kFailedKey, "global rank " + std::to_string(own) + " cannot make its part of group '" +
                             group_.name + "': " + why);
  } catch (const std::exception&) {  // this rank's own error says it already
  }
}

std::string Rendezvous::commit(const std::string& unsupported_reason, std::chrono::milliseconds timeout) {
  const GroupMaking::Wait wait(making_);
  return decide_commit(*store_, "made", group_.rank, group_.size(), timeout, unsupported_reason);
}

void Rendezvous::leave() noexcept { leave_in_turn(*store_, "left", group_.rank, group_.size(), kFarewell); }

}  // namespace altorch::backend
