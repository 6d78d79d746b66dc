#include "common/survey.h"

#include <algorithm>
#include <optional>

#include "common/absent.h"
#include "common/error.h"
#include "common/fields.h"
#include "common/patient_store.h"
#include "common/poll_pause.h"

namespace altorch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kToWriteTheList{2};       // of whoever took that upon itself
constexpr std::chrono::milliseconds kBetweenLooks{100};  // at the living

std::string attempt_key(const Survey& survey, int attempt) {
  return survey.key + "/" + std::to_string(attempt);
}

template <typename Look>
auto wait_for_agreement(const Survey& survey, const std::string& purpose, Look&& look) {
  const auto deadline = Clock::now() + 2 * survey.patience;
  PollPause pause;
  while (true) {
    if (auto found = if_it_answers(look)) return *std::move(found);
    if (Clock::now() > deadline) {
      throw Error(ErrorKind::kTimeout, "the ranks that are left have not agreed on " + purpose + " within " +
                                           in_seconds(2 * survey.patience) + "; start the job again");
    }
    pause.pause();
  }
}

class Surveyor {
 public:
  Surveyor(KeyValueStore& store, const Survey& survey) : store_(store), survey_(survey) {}

  Survivors find() {
    const std::string purpose = "who they are";
    attempt_ = wait_for_agreement(survey_, purpose, [&] { return std::optional(read_attempt()); });
    come();
    auto list = wait_for_agreement(survey_, purpose, [&] { return look(); });
    return {attempt_, std::move(list)};
  }

 private:
  int read_attempt() {
    const auto attempt = store_.try_get(survey_.key + "/attempt");
    return attempt ? std::stoi(*attempt) : 0;
  }

  // To the round that is open now.
  void come() {
    came_ = Clock::now();
    taken_ = {};
    lowest_ = 0;
    sooner_or_later([&] { store_.set(key("come/" + std::to_string(survey_.rank)), "1"); });
    sooner_or_later([&] { store_.add(key("count"), 1); });
  }

  std::optional<std::vector<int>> look() {
    if (auto list = read_list()) return list;
    if (store_.try_get(key("void"))) {
      ++round_;
      come();
      return std::nullopt;
    }
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
    for (const std::string& field : decode_fields(*text)) ranks.push_back(std::stoi(field));
    return ranks;
  }

  // Nobody before this rank can.
  bool leads() {
    const auto cannot = [&](int rank) { return survey_.is_dead(rank) || (is_late() && !has_come(rank)); };
    while (lowest_ < survey_.rank && cannot(lowest_)) ++lowest_;
    return lowest_ == survey_.rank;
  }

  void lead() {
    const auto now = Clock::now();
    if (!taken_ && !is_late() && !are_all_accounted_for()) return;
    if (!taken_) {
      if (store_.add(key("taken"), 1) == 1) {
        write_list();
        return;
      }
      taken_ = now;  // by a rank that is dead now, or that this one took for late
    }
    if (now - *taken_ > kToWriteTheList) store_.set(key("void"), "1");
  }

  // One request, until the numbers say that it may be so: who came and died since is counted twice.
  bool are_all_accounted_for() {
    const auto came = store_.try_get(key("count"));
    int dead = 0;
    for (int rank = 0; rank < survey_.size; ++rank) dead += survey_.is_dead(rank) ? 1 : 0;
    if (!came || std::stoi(*came) + dead < survey_.size) return false;
    for (int rank = 0; rank < survey_.size; ++rank) {
      if (!survey_.is_dead(rank) && !has_come(rank)) return false;
    }
    return true;
  }

  bool is_late() const { return Clock::now() - came_ > survey_.patience; }

  bool has_come(int rank) { return store_.try_get(key("come/" + std::to_string(rank))).has_value(); }

  void write_list() {
    Fields left;
    for (int rank = 0; rank < survey_.size; ++rank) {
      if (rank == survey_.rank || (has_come(rank) && !survey_.is_dead(rank)))
        left.push_back(std::to_string(rank));
    }
    store_.set(key("list"), encode_fields(left));
  }

  std::string key(const std::string& what) const {
    return attempt_key(survey_, attempt_) + "/" + std::to_string(round_) + "/" + what;
  }

  KeyValueStore& store_;
  const Survey& survey_;
  int attempt_ = 0, round_ = 0, lowest_ = 0;
  Clock::time_point came_{}, next_look_{};
  std::optional<Clock::time_point>
      taken_;  // when this rank found that another had taken the list upon itself
};

}  // namespace

Survivors find_survivors(KeyValueStore& store, const Survey& survey) {
  if (survey.size == 1) return {0, {0}};
  return Surveyor(store, survey).find();
}

bool have_all_made_it(KeyValueStore& store, const Survey& survey, const Survivors& left, bool made) {
  if (survey.size == 1) return made;
  const std::string key = attempt_key(survey, left.attempt) + "/made/";
  const auto decide = [&](const std::string& verdict) {
    if (store.add(key + "decided", 1) != 1) return;
    // Before the verdict: who has read that one finds the next attempt.
    if (verdict == "void") store.set(survey.key + "/attempt", std::to_string(left.attempt + 1));
    store.set(key + "verdict", verdict);
  };
  std::vector<std::string> by_rank;
  for (const int rank : left.ranks) by_rank.push_back(key + std::to_string(rank));
  if (made) sooner_or_later([&] { store.set(key + std::to_string(survey.rank), "1"); });
  bool has_decided = false;
  return wait_for_agreement(survey, "whether all of them can go on", [&]() -> std::optional<bool> {
    if (const auto verdict = store.try_get(key + "verdict")) return *verdict == "made";
    if (has_decided) return std::nullopt;
    const auto is_dead = [&](int rank) { return survey.is_dead(rank); };
    const bool is_hopeless = !made || std::any_of(left.ranks.begin(), left.ranks.end(), is_dead);
    const bool is_done =
        !is_hopeless && survey.rank == left.ranks.front() && store.multi_get(by_rank).has_value();
    if (!is_hopeless && !is_done) return std::nullopt;
    has_decided = true;
    decide(is_done ? "made" : "void");
    return std::nullopt;
  });
}

}  // namespace altorch
