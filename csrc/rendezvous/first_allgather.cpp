// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/first_allgather.h"

#include <algorithm>

#include "base/error.h"
#include "base/number.h"
#include "base/random_name.h"
#include "rendezvous/absent.h"
#include "rendezvous/retrying_store.h"
#include "rendezvous/store_allgather.h"

namespace altorch {
namespace {

// One rank's part in the allgather.
class AllgatherOfOneRank {
 public:
  AllgatherOfOneRank(KeyValueStore& store, const std::string& key, int rank, int size, const Fields& info)
      : store_(store), key_(key), rank_(rank), size_(size), info_(info) {
    info_.insert(info_.begin(), own_name_);
    if (rank != 0) return;
    under_ = own_name_;
    post_request([&] { store_.set(info_key(0), encode_fields(info_)); });
    post_request([&] { store_.set(challenge_key(), own_name_); });
  }

  // The texts of all ranks, once they are there; until then nothing.
  std::optional<FirstAllgather> look() { return rank_ == 0 ? collect() : read(); }

  // Called at the end, after success or failure. A rank that finds an empty challenge waits for the
  // next one.
  void withdraw_challenge() noexcept {
    if (rank_ != 0) return;
    try {
      store_.set(challenge_key(), "");
    } catch (const std::exception&) {  // then ranks may answer a challenge that has ended
    }
  }

  // After a failure: ranks that have the table already wait for this rank in the group's next
  // allgather.
  void report(const std::string& why) noexcept {
    if (under_.empty()) return;
    try {
      store_.set(prefix() + "/" + kFailedKey,
                 "rank " + std::to_string(rank_) + " aborted while the group was made: " + why);
    } catch (const std::exception&) {  // its own error says so
    }
  }

  // After a failure: rank 0, which may host the store, leaves after the other ranks that came, or
  // after kFarewell.
  void leave() noexcept {
    if (under_.empty()) return;
    try {
      const auto came = rank_ == 0 ? store_.try_get(prefix() + "/count") : std::nullopt;
      leave_in_turn(store_, prefix() + "/left", rank_, 1 + came_of(came), kFarewell);
    } catch (const std::exception&) {  // the store is gone, or does not answer
    }
  }

  std::string absent() {
    if (under_.empty()) return has_challenge() ? "some rank has not come" : "rank 0 has not come";
    return absent_ranks(store_, {prefix(), [this](int rank) { return info_key(rank); }, rank_, size_});
  }

 private:
  std::optional<FirstAllgather> collect() {
    const auto count = store_.try_get(prefix() + "/count");
    if (came_of(count) < size_ - 1) return std::nullopt;
    std::vector<std::string> keys;
    for (int rank = 0; rank < size_; ++rank) keys.push_back(info_key(rank));
    const auto infos = store_.multi_get(keys);
    if (!infos) return std::nullopt;  // a rank came twice, after a failure
    std::vector<Fields> rows;
    for (const std::string& info : *infos) rows.push_back(decode_fields(info));
    store_.set(prefix() + "/table", encode_rows(rows));
    return finished(std::move(rows));
  }

  std::optional<FirstAllgather> read() {
    const auto now = WaitClock::now();
    if (now >= next_challenge_) {
      const auto challenge = store_.try_get(challenge_key());
      if (challenge && !challenge->empty() && *challenge != under_) answer(*challenge);
      if (!under_.empty()) next_challenge_ = now + calm_pace(size_);
    }
    if (under_.empty()) return std::nullopt;
    const auto table = store_.try_get(prefix() + "/table");
    if (!table) return std::nullopt;
    auto rows = decode_rows(*table);
    const auto own = static_cast<std::size_t>(rank_);
    if (rows.size() != static_cast<std::size_t>(size_) || rows[own].empty() || rows[own][0] != own_name_) {
      next_challenge_ = {};  // an old one
      return std::nullopt;
    }
    return finished(std::move(rows));
  }

  void answer(const std::string& challenge) {
    under_ = challenge;
    post_request([&] { store_.set(info_key(rank_), encode_fields(info_)); });
    post_request([&] { store_.add(prefix() + "/count", 1); });
  }

  FirstAllgather finished(std::vector<Fields> rows) {
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      if (rows[rank].empty())
        throw Error(ErrorKind::kInternal,
                    "rank " + std::to_string(rank) + " has written no text for " + key_);
      rows[rank].erase(rows[rank].begin());
    }
    return {prefix(), std::move(rows)};
  }

  // How many ranks have come, as the store counts them.
  int came_of(const std::optional<std::string>& count) const {
    if (!count) return 0;
    return static_cast<int>(std::clamp<std::int64_t>(
        number_from<std::int64_t>(*count, "how many ranks have come"), 0, size_ - 1));
  }

  // True also if the store does not answer.
  bool has_challenge() noexcept {
    try {
      const auto challenge = store_.try_get(challenge_key());
      return challenge && !challenge->empty();
    } catch (const std::exception&) {
      return true;
    }
  }

  std::string challenge_key() const { return key_ + "/challenge"; }
  std::string prefix() const { return key_ + "/" + under_; }
  std::string info_key(int rank) const { return prefix() + "/info/" + std::to_string(rank); }

  static constexpr std::chrono::seconds kFarewell{2};

  KeyValueStore& store_;
  const std::string key_;
  const int rank_, size_;
  const std::string own_name_ = random_name();
  Fields info_;
  std::string under_;  // the challenge that was answered last; empty: none yet
  WaitClock::time_point next_challenge_{};
};

}  // namespace

FirstAllgather first_allgather(KeyValueStore& store, const std::string& key, int rank, int size,
                               std::chrono::milliseconds timeout, const std::string& purpose,
                               const Fields& info) {
  if (size == 1) return {key + "/" + random_name(), {info}};
  AllgatherOfOneRank own(store, key, rank, size, info);
  try {
    auto met = poll_until_found(store, size, timeout, [&] { return own.look(); });
    own.withdraw_challenge();
    return met;
  } catch (const Error& error) {
    const std::string absent = own.absent();
    own.withdraw_challenge();
    own.report(error.what());
    own.leave();
    throw error.with_prefix(absent + " " + purpose + ": ");
  }
}

}  // namespace altorch
