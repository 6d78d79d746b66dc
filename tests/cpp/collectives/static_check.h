// SPDX-License-Identifier: BSD-3-Clause
// Checks of schedules that need no run: slices in range, rounds without conflicts, messages that
// pair up. Each returns what is wrong, or "".
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collectives/virtual_ranks.h"

namespace altorch::proof {

// Elements begin..end-1 of a rank's arena.
struct Extent {
  std::int64_t begin, end;
  bool overlaps(const Extent& other) const {
    return begin < end && other.begin < other.end && begin < other.end && other.begin < end;
  }
};

class RankCheck {
 public:
  RankCheck(const Schedule& schedule, const Layout& layout, int rank, int size)
      : schedule_(schedule), layout_(layout), rank_(rank), size_(size) {}

  std::string check() const {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < schedule_.rounds.size(); ++i) {
      const Round& round = schedule_.rounds[i];
      if (round.messages_begin != next || round.locals_begin != round.messages_end ||
          round.messages_end < round.messages_begin || round.locals_end < round.locals_begin) {
        return failure(i, "does not go on where the last round ended");
      }
      next = round.locals_end;
      for (const std::string& result :
           {in_range(round, i), messages_do_not_clash(round, i), locals_do_not_clash(round, i)}) {
        if (!result.empty()) return result;
      }
    }
    if (next != schedule_.steps.size()) return failure(schedule_.rounds.size(), "steps belong to no round");
    return "";
  }

 private:
  std::string failure(std::size_t round, const char* what) const {
    return "rank " + std::to_string(rank_) + " round " + std::to_string(round) + " " + what;
  }
  const Step& step(std::uint32_t i) const { return schedule_.steps[i]; }
  Extent extent(const Slice& slice) const {
    const std::int64_t begin = layout_.base(slice.region) + slice.offset;
    return {begin, begin + slice.count};
  }
  bool fits(const Slice& slice) const {
    return slice.count >= 0 && slice.offset >= 0 && slice.offset + slice.count <= layout_.count(slice.region);
  }
  bool combines_whole_parts(const Step& s) const {
    return fits(s.b) && s.c.count > 0 && s.b.count == s.c.count && s.a.count % s.c.count == 0 &&
           s.peer >= 0 && s.peer < parts_of(s);
  }
  // A copy onto itself: in place.
  bool does_nothing(const Step& s) const {
    return s.kind == StepKind::kCopy && extent(s.a).begin == extent(s.c).begin;
  }

  std::string in_range(const Round& round, std::size_t i) const {
    for (auto k = round.messages_begin; k < round.locals_end; ++k) {
      const Step& s = step(k);
      const bool is_message = s.kind == StepKind::kSend || s.kind == StepKind::kReceive;
      if (is_message != (k < round.messages_end)) return failure(i, "mixes messages and local steps");
      if (is_message && (s.peer < 0 || s.peer >= size_ || s.peer == rank_))
        return failure(i, "has a bad peer");
      if (!fits(s.a)) return failure(i, "leaves its region");
      if (is_message) continue;
      const bool equal = s.a.count == s.c.count || s.kind == StepKind::kCombine;
      if (!fits(s.c) || !equal) return failure(i, "copies or reduces beyond its region");
      if (s.kind == StepKind::kReduce && (!fits(s.b) || s.b.count != s.c.count)) {
        return failure(i, "reduces operands of different size");
      }
      if (s.kind == StepKind::kCombine && !combines_whole_parts(s)) {
        return failure(i, "combines parts of different size");
      }
    }
    return "";
  }

  // What is received overlaps nothing else that is on its way.
  std::string messages_do_not_clash(const Round& round, std::size_t i) const {
    for (auto k = round.messages_begin; k < round.messages_end; ++k) {
      if (step(k).kind != StepKind::kReceive) continue;
      for (auto other = round.messages_begin; other < round.messages_end; ++other) {
        if (other != k && extent(step(k).a).overlaps(extent(step(other).a))) {
          return failure(i, "receives into memory of another message");
        }
      }
    }
    return "";
  }

  // Local steps neither write what is on its way nor read what has not arrived; operands overlap
  // only where allowed.
  std::string locals_do_not_clash(const Round& round, std::size_t i) const {
    for (auto k = round.locals_begin; k < round.locals_end; ++k) {
      const Step& s = step(k);
      if (does_nothing(s)) continue;
      for (auto m = round.messages_begin; m < round.messages_end; ++m) {
        const Extent message = extent(step(m).a);
        if (extent(s.c).overlaps(message)) return failure(i, "writes memory of a message");
        const bool reads_it =
            extent(s.a).overlaps(message) || (s.kind != StepKind::kCopy && extent(s.b).overlaps(message));
        if (step(m).kind == StepKind::kReceive && reads_it) return failure(i, "reads what has not arrived");
      }
      if (s.kind == StepKind::kCopy && extent(s.a).overlaps(extent(s.c)))
        return failure(i, "copies within itself");
      if (s.kind == StepKind::kCombine && (extent(s.a).overlaps(extent(s.c)) || partly_overlaps(s.b, s.c))) {
        return failure(i, "combines into its parts");
      }
      if (s.kind == StepKind::kReduce && (partly_overlaps(s.a, s.c) || partly_overlaps(s.b, s.c))) {
        return failure(i, "reduces into a shifted operand");
      }
    }
    return "";
  }
  bool partly_overlaps(const Slice& x, const Slice& y) const {
    return extent(x).begin != extent(y).begin && extent(x).overlaps(extent(y));
  }

  const Schedule& schedule_;
  const Layout& layout_;
  const int rank_, size_;
};

// Between each pair of ranks, the k-th message sent has the size of the k-th received.
inline std::string messages_pair_up(const std::vector<Schedule>& schedules) {
  std::map<std::pair<int, int>, std::vector<std::int64_t>> sent, received;  // by (source, destination)
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const int rank = static_cast<int>(i);
    for (const Step& step : schedules[i].steps) {
      if (step.kind == StepKind::kSend) sent[{rank, step.peer}].push_back(step.a.count);
      if (step.kind == StepKind::kReceive) received[{step.peer, rank}].push_back(step.a.count);
    }
  }
  if (sent == received) return "";
  for (const auto& [pair, counts] : sent) {
    if (received[pair] != counts) {
      return "messages from rank " + std::to_string(pair.first) + " to rank " + std::to_string(pair.second) +
             " do not pair up: " + std::to_string(counts.size()) + " sent, " +
             std::to_string(received[pair].size()) + " expected, or their sizes differ";
    }
  }
  return "a rank expects messages that no rank sends";
}

inline std::string check_statically(const std::vector<Schedule>& schedules,
                                    const std::vector<Layout>& layouts) {
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const std::string result =
        RankCheck(schedules[i], layouts[i], static_cast<int>(i), static_cast<int>(schedules.size())).check();
    if (!result.empty()) return result;
  }
  return messages_pair_up(schedules);
}

}  // namespace altorch::proof
