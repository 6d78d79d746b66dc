// How a group comes into being: its ranks meet in the store, compare what has to agree, and know from then on
// which keys are theirs and whose processes to look after while they wait for each other.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "backend/options.h"
#include "backend/store.h"
#include "common/fields.h"
#include "observe/job_watch.h"
#include "observe/watched_store.h"

namespace altorch::backend {

struct GroupSettings {
  std::string name;
  std::string key_prefix;  // of the group's keys in the store, this life's alone; the rendezvous draws it
  int rank = 0;
  int size = 1;
  std::vector<int> job_ranks;  // of the members, as the job's first group of today numbers them
  std::vector<int> mpi_ranks;  // of the members, as MPI numbers them: by the first group that there ever was
  std::chrono::milliseconds timeout{0};
  std::shared_ptr<StoreLease> store_lease;  // the rendezvous takes it
};

// The caller may give the same options to several groups: a copy for this one.
c10::intrusive_ptr<AlOptions> own_options(const AlOptions& given, const GroupSettings& settings);

// Thread rules: one thread, but for store() and watch().
class Rendezvous {
 public:
  // Collective over the group. `key`: of the group's name and its ranks. `is_job`: it is the job's first
  // group (of this life), which begins a new watch. `word`: for words(); its first `agreed` fields,
  // "name=value", must be alike on all ranks. Throws Error: kMismatch on every rank when they differ.
  Rendezvous(const c10::intrusive_ptr<c10d::Store>& store, GroupSettings settings, const std::string& key,
             bool is_job, const AlOptions& options, const Fields& word = {}, std::size_t agreed = 0);

  const GroupSettings& settings() const { return settings_; }
  bool is_job() const { return is_job_; }
  // Known once the ranks have told each other.
  void set_mpi_ranks(std::vector<int> ranks) { settings_.mpi_ranks = std::move(ranks); }
  const std::vector<Fields>& words() const { return words_; }  // by rank
  const std::shared_ptr<C10dStore>& store() const { return store_; }
  // The group's keys, over the caller's own connection, for who blocks in requests.
  const c10::intrusive_ptr<c10d::Store>& c10d() const { return c10d_; }
  const std::shared_ptr<JobWatch>& watch() const { return watch_; }
  // The store, for who waits there until the group is made.
  WatchedStore& watched() { return *watched_; }

  // Everybody's text, by rank; collective, with a key that is used once.
  std::vector<std::string> exchange(const std::string& key, const std::string& text,
                                    std::chrono::milliseconds timeout);
  // The last thing of all: the rank that hosts the store leaves last, or after a few seconds.
  void leave() noexcept;

 private:
  std::optional<Error> obstacle(const std::vector<Fields>& words, std::size_t agreed_end) const;
  void choose_watch(const std::vector<Fields>& identities, bool is_job);

  GroupSettings settings_;
  const bool is_job_;
  std::vector<Fields> words_;
  c10::intrusive_ptr<c10d::Store> c10d_;
  std::shared_ptr<C10dStore> store_;
  std::shared_ptr<JobWatch> watch_;
  std::unique_ptr<WatchedStore> watched_;
};

}  // namespace altorch::backend
