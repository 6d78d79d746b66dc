// SPDX-License-Identifier: BSD-3-Clause
// How a group is made: its ranks find each other in the store, compare what has to agree, and know from then on
// which keys are theirs and whose processes to look after while they wait for each other.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "backend/recorder/creation_trace.h"
#include "backend/store/group_making.h"
#include "backend/c10d/options.h"
#include "backend/store/store.h"
#include "base/fields.h"
#include "rendezvous/first_allgather.h"
#include "rendezvous/membership.h"
#include "rendezvous/poll_pause.h"
#include "observe/job_watch.h"
#include "observe/liveness_store.h"

namespace altorch::backend {

// The group's keys, for a rank that waits there until the group is made.
class RendezvousStore : public LivenessStore {
 public:
  RendezvousStore(c10::intrusive_ptr<c10d::Store> callers, std::shared_ptr<StoreLease> lease,
                  KeyValueStore& store, std::shared_ptr<JobWatch> watch, const std::vector<int>& ranks)
      : LivenessStore(store, std::move(watch), ranks),
        callers_(std::move(callers)),
        lease_(std::move(lease)),
        between_questions_(std::max(kBetweenQuestions, calm_pace(static_cast<int>(ranks.size())))) {}
  // Throws Error(kTransport), too, when a rank has reported that it failed.
  void check_peers() override;
  // The same keys over the caller's own connection, for who blocks in requests; ours leaves it from now on.
  const c10::intrusive_ptr<c10d::Store>& callers() const {
    lease_->settle();
    return callers_;
  }

 private:
  const c10::intrusive_ptr<c10d::Store> callers_;
  const std::shared_ptr<StoreLease> lease_;
  static constexpr std::chrono::milliseconds kBetweenQuestions{500};
  const std::chrono::milliseconds between_questions_;  // all waiting ranks ask
  std::chrono::steady_clock::time_point next_question_ = std::chrono::steady_clock::now() + kBetweenQuestions;
};

// Thread rules: one thread.
class Rendezvous {
 public:
  // Collective over the group. `group`: without store, watch and key, which it gets here; the job's first one
  // begins a new watch. `key`: of its name and its ranks. `word`: for words(); its first `agreed` fields,
  // "name=value", must be alike on all ranks. Throws Error: kMismatch on every rank when they differ. `processes`: of the
  // ranks, where they are known beforehand; then the death of a rank that has not come yet is seen at once, and `key` must
  // not have been used before.
  Rendezvous(const c10::intrusive_ptr<c10d::Store>& store, Membership group, const std::string& key,
             const AlOptions& options, const Fields& word = {}, std::size_t agreed = 0,
             const std::vector<ProcessId>& processes = {});

  const Membership& group() const { return group_; }
  const std::vector<Fields>& words() const { return words_; }  // by rank
  RendezvousStore& store() { return *store_; }
  const std::shared_ptr<StoreLease>& lease() const { return lease_; }

  // The caller's connection is somebody else's again: what has to be asked in the store goes over one of our own.
  // Before anybody blocks there, and at the end.
  void settle() noexcept { lease_->settle(); }
  ~Rendezvous() { settle(); }
  Rendezvous(const Rendezvous&) = delete;

  // The text of every rank, by rank. Collective; each call needs a new key.
  std::vector<std::string> exchange(const std::string& key, const std::string& text,
                                    std::chrono::milliseconds timeout);
  // Whether all have made what `unsupported_reason` says of this rank that it could not: rendezvous/commit_decision.h. Once.
  std::string commit(const std::string& unsupported_reason, std::chrono::milliseconds timeout);
  // This rank cannot make its part: ranks that wait for it raise an error that says so, instead of waiting until their
  // timeout. Does nothing where the store does not answer.
  void fail(const std::string& why) noexcept;
  // What carries it has been made, and tells of it from now on.
  void is_made() noexcept { creation_trace_.reset(); }
  // The last thing of all: the rank that hosts the store leaves last, or after a few seconds.
  void leave() noexcept;

 private:
  std::optional<Error> unsupported_reason(const std::vector<Fields>& words, std::size_t agreed_end) const;
  void choose_watch(const std::vector<Fields>& identities, const c10::intrusive_ptr<c10d::Store>& store);
  // Over these processes, by rank; with keys in `store` under `name`, which is new, and the same on all ranks.
  void make_watch(const std::vector<ProcessId>& processes, const c10::intrusive_ptr<c10d::Store>& store,
                  const std::string& name);

  Membership group_;
  const GroupMaking making_;
  std::unique_ptr<CreationTrace> creation_trace_;
  std::shared_ptr<StoreLease> lease_;
  std::vector<Fields> words_;
  std::unique_ptr<RendezvousStore> store_;
};

}  // namespace altorch::backend
