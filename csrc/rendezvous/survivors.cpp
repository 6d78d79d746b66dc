// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/survivors.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/fields.h"
#include "base/number.h"
#include "rendezvous/absent.h"
#include "rendezvous/poll_pause.h"
#include "rendezvous/retrying_store.h"

namespace altorch {
namespace {

using Clock = WaitClock;

constexpr std::chrono::milliseconds kBetweenLooks{100};
constexpr int kMostAttempts = 10'000;

// What an attempt comes to: see all_succeeded().
constexpr const char *kMade = "made", *kVoid = "void";

std::string attempt_key(const SurvivorQuery& query, int attempt) {
  return query.key + "/" + std::to_string(attempt);
}

std::string decision_key(const SurvivorQuery& query, int attempt) {
  return attempt_key(query, attempt) + "/made/decision";
}

template <typename Look>
auto wait_for_agreement(const SurvivorQuery& query, const std::string& purpose, Look&& look) {
  const auto deadline = Clock::now() + 2 * query.timeout;
  PollPause pause(query.size, deadline);
  while (true) {
    if (auto found = try_request(look)) return *std::move(found);
    if (Clock::now() > deadline) {
      throw Error(ErrorKind::kTimeout, "the ranks that are left have not agreed on " + purpose + " within " +
                                           in_seconds(2 * query.timeout) + "; start the job again");
    }
    pause.pause();
  }
}

class SurvivorAgreement {
 public:
  SurvivorAgreement(KeyValueStore& store, const SurvivorQuery& query) : store_(store), query_(query) {}

  Survivors find() {
    const std::string purpose = "who they are";
    attempt_ = wait_for_agreement(query_, purpose, [&] { return std::optional(read_attempt()); });
    announce();
    auto list = wait_for_agreement(query_, purpose, [&] { return look(); });
    return {attempt_, std::move(list)};
  }

 private:
  // The first attempt that has not failed.
  int read_attempt() {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      const auto decision = store_.try_get(decision_key(query_, attempt));
      if (!decision || *decision == kMade) return attempt;
    }
    throw Error(ErrorKind::kInternal,
                "other ranks wrote that " + std::to_string(kMostAttempts) + " attempts to go on have failed");
  }

  void announce() {
    came_ = Clock::now();
    post_request([&] { store_.set(come_key(query_.rank), "1"); });
    post_request([&] { store_.add(key("count"), 1); });
  }

  std::optional<std::vector<int>> look() {
    if (auto list = read_list()) return list;
    if (Clock::now() < next_look_) return std::nullopt;
    if (leads())
      lead();
    else
      next_look_ = Clock::now() + kBetweenLooks;
    return std::nullopt;
  }

  std::optional<std::vector<int>> read_list() {
    const auto text = store_.try_get(key("list"));
    if (!text) return std::nullopt;
    std::vector<int> ranks;
    for (const std::string& field : decode_fields(*text)) {
      const int rank = number_from<int>(field, "a rank that is left");
      if (rank >= query_.size || rank <= (ranks.empty() ? -1 : ranks.back()))
        throw Error(ErrorKind::kInternal, "another rank wrote a list of who is left that has " +
                                              excerpt(field) + " where no such rank can be");
      ranks.push_back(rank);
    }
    if (ranks.empty()) throw Error(ErrorKind::kInternal, "another rank wrote that no rank is left");
    return ranks;
  }

  // Whether this rank writes the list: all lower ranks are dead, or the timeout has passed.
  bool leads() {
    while (lowest_ < query_.rank && query_.is_dead(lowest_)) ++lowest_;
    return lowest_ == query_.rank || is_late();
  }

  // One rank at a time has the role of the writer: the one that claims the current turn. It may die
  // before it writes, so the next turn begins after a while.
  void lead() {
    if (!turn_began_ && !is_late() && !are_all_accounted_for()) return;
    const auto now = Clock::now();
    if (turn_began_ && now - *turn_began_ <= turn_length()) return;
    turn_began_ = now;
    if (store_.add(key("taken/" + std::to_string(turns_++)), 1) == 1) write_list();
  }

  // Short enough that a second writer can write before wait_for_agreement() ends.
  std::chrono::milliseconds turn_length() const {
    return std::min(2 * calm_pace(query_.size), query_.timeout / 2);
  }

  // Compares counts first, in one request. A rank that announced itself and then died is in the
  // count and among the dead, so the keys of all live ranks are read as well.
  bool are_all_accounted_for() {
    const auto came = store_.try_get(key("count"));
    const std::vector<int> living = not_dead();
    const int dead = query_.size - static_cast<int>(living.size());
    if (!came || number_from<std::int64_t>(*came, "how many ranks have come") < query_.size - dead)
      return false;
    return have_come(living);
  }

  std::vector<int> not_dead() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < query_.size; ++rank) {
      if (!query_.is_dead(rank)) ranks.push_back(rank);
    }
    return ranks;
  }

  bool is_late() const { return Clock::now() - came_ > query_.timeout; }

  bool have_come(const std::vector<int>& ranks) {
    std::vector<std::string> keys;
    for (const int rank : ranks) keys.push_back(come_key(rank));
    return store_.multi_get(keys).has_value();
  }

  void write_list() {
    const std::vector<int> living = not_dead();
    const bool all = have_come(living);
    Fields left;
    for (const int rank : living) {
      if (all || rank == query_.rank || store_.try_get(come_key(rank))) left.push_back(std::to_string(rank));
    }
    store_.set_once(key("list"), encode_fields(left));
  }

  std::string come_key(int rank) const { return key("come/" + std::to_string(rank)); }

  std::string key(const std::string& what) const { return attempt_key(query_, attempt_) + "/" + what; }

  KeyValueStore& store_;
  const SurvivorQuery& query_;
  int attempt_ = 0, lowest_ = 0, turns_ = 0;
  Clock::time_point came_{}, next_look_{};
  std::optional<Clock::time_point> turn_began_;
};

}  // namespace

Survivors find_survivors(KeyValueStore& store, const SurvivorQuery& query) {
  if (query.size == 1) return {0, {0}};
  return SurvivorAgreement(store, query).find();
}

bool all_succeeded(KeyValueStore& store, const SurvivorQuery& query, const Survivors& left, bool made) {
  if (query.size == 1) return made;
  const std::string key = attempt_key(query, left.attempt) + "/made/";
  const auto have_all = [&] {
    const auto count = store.try_get(key + "count");
    return count && number_from<std::uint64_t>(*count, "how many ranks can go on") >= left.ranks.size();
  };
  if (made) post_request([&] { store.add(key + "count", 1); });
  bool has_decided = false;
  return wait_for_agreement(query, "whether all of them can go on", [&]() -> std::optional<bool> {
    if (const auto decision = store.try_get(decision_key(query, left.attempt))) return *decision == kMade;
    if (has_decided) return std::nullopt;
    const auto is_dead = [&](int rank) { return query.is_dead(rank); };
    const bool is_hopeless = !made || std::any_of(left.ranks.begin(), left.ranks.end(), is_dead);
    const bool is_done = !is_hopeless && query.rank == left.ranks.front() && have_all();
    if (!is_hopeless && !is_done) return std::nullopt;
    has_decided = true;
    store.set_once(decision_key(query, left.attempt), is_done ? kMade : kVoid);
    return std::nullopt;
  });
}

}  // namespace altorch
