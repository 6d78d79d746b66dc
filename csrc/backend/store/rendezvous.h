// SPDX-License-Identifier: BSD-3-Clause
// How a group is made. Its ranks meet in the store and compare what has to agree. From then on they
// know the keys of the group, and which processes to watch while they wait for each other.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "backend/c10d/options.h"
#include "backend/recorder/creation_trace.h"
#include "backend/store/group_making.h"
#include "backend/store/store.h"
#include "base/fields.h"
#include "health/liveness_store.h"
#include "rendezvous/first_allgather.h"
#include "rendezvous/membership.h"
#include "rendezvous/poll_pause.h"
#include "trace/job_watch.h"

namespace altorch::backend {

// The group's keys in the store, for a rank that waits until the group is made.
class RendezvousStore : public LivenessStore {
 public:
  RendezvousStore(c10::intrusive_ptr<c10d::Store> callers, std::shared_ptr<StoreLease> lease,
                  KeyValueStore& store, std::shared_ptr<JobWatch> watch, const std::vector<int>& ranks)
      : LivenessStore(store, liveness_of(std::move(watch)), ranks),
        callers_(std::move(callers)),
        lease_(std::move(lease)),
        between_questions_(std::max(kBetweenQuestions, calm_pace(static_cast<int>(ranks.size())))) {}
  // Also throws Error(kTransport) if a rank has reported that it failed.
  void check_peers() override;
  // The same keys over the caller's own connection, for requests that block. altorch's own requests
  // use another connection from now on.
  const c10::intrusive_ptr<c10d::Store>& callers() const {
    lease_->settle();
    return callers_;
  }

 private:
  const c10::intrusive_ptr<c10d::Store> callers_;
  const std::shared_ptr<StoreLease> lease_;
  static constexpr std::chrono::milliseconds kBetweenQuestions{500};
  const std::chrono::milliseconds between_questions_;  // longer for more ranks, since all of them ask
  std::chrono::steady_clock::time_point next_question_ = std::chrono::steady_clock::now() + kBetweenQuestions;
};

// Thread rules: one thread.
class Rendezvous {
 public:
  // Collective over the group. `group`: without store, watch and key, which the constructor sets;
  // the job's first group begins a new watch. `key`: made of the group's name and its ranks.
  // `word`: its first `agreed` fields, "name=value", must be equal on all ranks; the other fields
  // become this rank's entry of words(). Throws Error: kMismatch on every rank if the fields
  // differ. `processes`: by rank, if they are known beforehand. Then the death of a rank that has
  // not come yet is noticed at once, and `key` must not have been used before.
  Rendezvous(const c10::intrusive_ptr<c10d::Store>& store, Membership group, const std::string& key,
             const AlOptions& options, const Fields& word = {}, std::size_t agreed = 0,
             const std::vector<ProcessId>& processes = {});

  const Membership& group() const { return group_; }
  const std::vector<Fields>& words() const { return words_; }  // by rank
  RendezvousStore& store() { return *store_; }
  const std::shared_ptr<StoreLease>& lease() const { return lease_; }

  // Gives the caller's connection back: altorch's requests to the store use a connection of their
  // own from now on. To be called before a thread blocks on the caller's connection, and at the
  // end.
  void settle() noexcept { lease_->settle(); }
  ~Rendezvous() { settle(); }
  Rendezvous(const Rendezvous&) = delete;

  // The text of every rank, by rank. Collective; each call needs a new key.
  std::vector<std::string> exchange(const std::string& key, const std::string& text,
                                    std::chrono::milliseconds timeout);
  // Two-phase commit (rendezvous/commit_decision.h), once: an empty string if all ranks have made
  // the group, else the reason of the abort. `unsupported_reason`: why this rank failed; empty if
  // it did not.
  std::string commit(const std::string& unsupported_reason, std::chrono::milliseconds timeout);
  // This rank cannot make its part: ranks that wait for it raise an error that says so, instead of
  // waiting until their timeout. Does nothing where the store does not answer.
  void fail(const std::string& why) noexcept;
  // The group's backend exists, and reports the group from now on.
  void is_made() noexcept { creation_trace_.reset(); }
  // The last call: the rank that hosts the store leaves last, or after a few seconds.
  void leave() noexcept;

 private:
  std::optional<Error> unsupported_reason(const std::vector<Fields>& words, std::size_t agreed_end) const;
  void choose_watch(const std::vector<Fields>& identities, const c10::intrusive_ptr<c10d::Store>& store);
  // Makes a watch over these processes, by rank. Its keys are in `store` under `name`, which is
  // new, and the same on all ranks.
  void make_watch(const std::vector<ProcessId>& processes, const c10::intrusive_ptr<c10d::Store>& store,
                  const std::string& name);

  // Outlives the group's watch, which reports deaths to the store at its end.
  std::shared_ptr<StoreLease> lease_;
  Membership group_;
  const GroupMaking making_;
  std::unique_ptr<CreationTrace> creation_trace_;
  std::vector<Fields> words_;
  std::unique_ptr<RendezvousStore> store_;
};

}  // namespace altorch::backend
