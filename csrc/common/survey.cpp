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

class Surveyor {
 public:
  Surveyor(KeyValueStore& store, const Survey& survey) : store_(store), survey_(survey) {}

  std::vector<int> find() {
    const auto deadline = Clock::now() + 2 * survey_.patience;
    come();
    PollPause pause;
    while (true) {
      if (const auto list = if_it_answers([&] { return look(); })) return *list;
      if (Clock::now() > deadline)
        throw Error(ErrorKind::kTimeout, "the ranks that are left have not agreed on who they are within " +
                                             in_seconds(2 * survey_.patience) + "; start the job again");
      pause.pause();
    }
  }

 private:
  // To the round that is open now.
  void come() {
    came_ = Clock::now();
    taken_ = {};
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
    if (std::find(ranks.begin(), ranks.end(), survey_.rank) != ranks.end()) return ranks;
    throw Error(ErrorKind::kClosed,
                "the other ranks have gone on without this one, which came too late; end this process");
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
      taken_ = now;  // by a rank that is dead now
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
    return survey_.key + "/" + std::to_string(round_) + "/" + what;
  }

  KeyValueStore& store_;
  const Survey& survey_;
  int round_ = 0, lowest_ = 0;
  Clock::time_point came_{}, next_look_{};
  std::optional<Clock::time_point>
      taken_;  // when this rank found that another had taken the list upon itself
};

}  // namespace

std::vector<int> find_survivors(KeyValueStore& store, const Survey& survey) {
  if (survey.size == 1) return {0};
  return Surveyor(store, survey).find();
}

}  // namespace altorch
