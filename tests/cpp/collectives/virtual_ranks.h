// SPDX-License-Identifier: BSD-3-Clause
// Runs an algorithm for all ranks of a group in one thread and holds the outcome against a
// reference that is computed directly from what schedule.h promises.
//
// A rank's regions lie in one arena between guard cells, so that a stray write is seen, and so that
// in-place calls are what they are in real life: one region inside another.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/executor.h"
#include "transports/loopback/channel.h"

namespace altorch::proof {

// One call of a collective by all ranks.
struct Call {
  const Algorithm* algorithm = nullptr;
  int size = 1;
  int root = 0;
  std::int64_t count = 0;
  // Uneven calls: elements of each rank's block; all_to_all: counts[i * size + j] from rank i to
  // rank j. Empty: even.
  std::vector<std::int64_t> counts = {};
  bool only_root_knows = false;  // gather and scatter
  bool in_place = false;
  std::int64_t segment = 0;
  LoopbackOptions delivery = {};

  std::string describe() const {
    std::string text = std::string(name_of(algorithm->kind)) + " " + std::string(algorithm->name) +
                       " size=" + std::to_string(size) + " root=" + std::to_string(root) +
                       " count=" + std::to_string(count) + " segment=" + std::to_string(segment) +
                       (in_place ? " in place" : "") + (only_root_knows ? " only the root knows" : "") +
                       " eager=" + std::to_string(delivery.eager_bytes) +
                       " delay=" + std::to_string(delivery.longest_delay) +
                       " seed=" + std::to_string(delivery.seed) + (counts.empty() ? "" : " counts=");
    for (const auto n : counts) text += std::to_string(n) + " ";
    return text;
  }

  // Elements that rank `from` has for rank `to`, or of block `from`.
  std::int64_t block(int from, int to = 0) const {
    if (counts.empty()) return count;
    return counts[static_cast<std::size_t>(algorithm->kind == OpKind::kAllToAll ? from * size + to : from)];
  }
  std::int64_t offset(int rank) const {
    std::int64_t offset = 0;
    for (int i = 0; i < rank; ++i) offset += block(i);
    return offset;
  }
};

// What one rank passes to build(), with the memory behind the spans.
class RankProblem {
 public:
  RankProblem(const Call& call, int rank) {
    problem_.rank = rank;
    problem_.size = call.size;
    problem_.root = call.root;
    problem_.count = call.count;
    problem_.segment_count = call.segment;
    if (call.counts.empty()) return;
    if (call.algorithm->kind == OpKind::kAllToAll) {
      for (int i = 0; i < call.size; ++i) {
        inputs_.push_back(call.block(rank, i));
        outputs_.push_back(call.block(i, rank));
      }
    } else if (call.only_root_knows && rank != call.root) {
      problem_.count = call.block(rank);
    } else {
      inputs_ = outputs_ = call.counts;
    }
    problem_.input_counts = inputs_;
    problem_.output_counts = outputs_;
  }
  RankProblem(const RankProblem&) = delete;
  const Problem& get() const { return problem_; }

 private:
  std::vector<std::int64_t> inputs_, outputs_;
  Problem problem_;
};

// Where the regions of one rank lie, in elements from the start of its arena.
struct Layout {
  std::int64_t input = 0, input_count = 0;
  std::int64_t output = 0, output_count = 0;
  std::int64_t scratch = 0, scratch_count = 0;
  std::int64_t total = 0;

  std::int64_t base(Region region) const {
    return region == Region::kInput ? input : region == Region::kOutput ? output : scratch;
  }
  std::int64_t count(Region region) const {
    return region == Region::kInput ? input_count : region == Region::kOutput ? output_count : scratch_count;
  }
};

inline constexpr std::int64_t kGuard = 3;

inline Layout layout_of(const Call& call, int rank, std::int64_t scratch_count) {
  Layout layout;
  layout.scratch_count = scratch_count;
  const bool is_root = rank == call.root;
  std::int64_t inside = 0;  // in place: where the smaller region starts in the larger
  switch (call.algorithm->kind) {
    case OpKind::kAllReduce:
    case OpKind::kScan:
    case OpKind::kExscan:
    case OpKind::kBroadcast:
      layout.output_count = call.count;
      break;
    case OpKind::kReduce:
      layout.input_count = call.count;
      layout.output_count = is_root ? call.count : 0;
      break;
    case OpKind::kAllGather:
      layout.input_count = call.block(rank);
      layout.output_count = call.offset(call.size);
      inside = call.offset(rank);
      break;
    case OpKind::kReduceScatter:
      layout.input_count = call.offset(call.size);
      layout.output_count = call.block(rank);
      inside = call.offset(rank);
      break;
    case OpKind::kAllToAll:
      for (int i = 0; i < call.size; ++i) {
        layout.input_count += call.block(rank, i);
        layout.output_count += call.block(i, rank);
      }
      break;
    case OpKind::kGather:
      layout.input_count = call.block(rank);
      layout.output_count = is_root ? call.offset(call.size) : 0;
      inside = call.offset(rank);
      break;
    case OpKind::kScatter:
      layout.input_count = is_root ? call.offset(call.size) : 0;
      layout.output_count = call.block(rank);
      inside = call.offset(rank);
      break;
    default:
      break;
  }
  std::int64_t next = kGuard;
  const auto place = [&next](std::int64_t count) {
    const std::int64_t begin = next;
    next += count + kGuard;
    return begin;
  };
  const bool aliased = call.in_place && layout.input_count > 0 && layout.output_count > 0;
  if (aliased && layout.input_count <= layout.output_count) {
    layout.output = place(layout.output_count);
    layout.input = layout.output + inside;
  } else if (aliased) {
    layout.input = place(layout.input_count);
    layout.output = layout.input + inside;
  } else {
    layout.input = place(layout.input_count);
    layout.output = place(layout.output_count);
  }
  layout.scratch = place(scratch_count);
  layout.total = next;
  return layout;
}

// All ranks of one call: their schedules and memory.
template <class T>
class VirtualRanks {
 public:
  explicit VirtualRanks(const Call& call) : call_(call) {
    for (int rank = 0; rank < call.size; ++rank) {
      // One run of numbers per rank, in which scratch comes last: two algorithms get the same
      // operands.
      std::mt19937_64 random(call.delivery.seed * 7919 + static_cast<std::uint64_t>(call.size * 100 + rank));
      schedules_.push_back(call.algorithm->build(RankProblem(call, rank).get()));
      layouts_.push_back(layout_of(call, rank, schedules_.back().scratch_count));
      std::vector<T> arena(static_cast<std::size_t>(layouts_.back().total));
      for (T& element : arena) element = any_value(random);
      arenas_.push_back(std::move(arena));
    }
    before_ = arenas_;
  }

  const std::vector<Schedule>& schedules() const { return schedules_; }
  const std::vector<Layout>& layouts() const { return layouts_; }
  std::span<const T> output(int rank) const { return region(arenas_, rank, Region::kOutput); }
  // Before run(): for operands other than the random ones. check() does not know of them.
  void set_output(int rank, std::int64_t i, T value) {
    const auto r = static_cast<std::size_t>(rank);
    arenas_[r][static_cast<std::size_t>(layouts_[r].output + i)] = value;
  }

  // Polls all ranks in turn to the end. Returns what went wrong, or "".
  std::string run(ReduceOp op = ReduceOp::kSum) {
    const auto channels = make_loopback_channels(call_.size, call_.delivery);
    std::vector<Execution> executions(static_cast<std::size_t>(call_.size));
    constexpr std::int64_t kTag = 5;
    for (std::size_t i = 0; i < executions.size(); ++i) {
      T* const arena = arenas_[i].data();
      executions[i].start(
          schedules_[i], *channels[i],
          {arena + layouts_[i].input, arena + layouts_[i].output, arena + layouts_[i].scratch, dtype(), op},
          kTag);
    }
    const int timeout = 2000 + 200 * call_.size * static_cast<int>(1 + call_.delivery.longest_delay);
    std::size_t done = 0;
    for (int turn = 0; turn < timeout && done < executions.size(); ++turn) {
      done = 0;
      for (std::size_t i = 0; i < executions.size(); ++i) {
        std::optional<Error> error;
        const State state = executions[i].advance(error);
        if (state == State::kFailed) {
          return "rank " + std::to_string(i) + " failed: " + error->what();
        }
        done += state == State::kDone ? 1 : 0;
      }
    }
    if (done == executions.size()) return "";
    return "stuck: " + std::to_string(done) + " of " + std::to_string(executions.size()) + " ranks are done";
  }

  // Whether every rank holds what schedule.h promises, and nothing else has changed: returns what
  // is wrong, or "". `equal(got, expected)` compares with sums in the reference's type.
  template <class Wide, class Equal>
  std::string check(Equal equal) const {
    for (int rank = 0; rank < call_.size; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const Layout& layout = layouts_[r];
      const std::vector<Wide> expected = reference<Wide>(rank);
      if (static_cast<std::int64_t>(expected.size()) != layout.output_count) {
        return "the reference of rank " + std::to_string(rank) + " has the wrong size";
      }
      for (std::int64_t i = 0; i < layout.total; ++i) {
        if (i >= layout.scratch && i < layout.scratch + layout.scratch_count) continue;
        const T got = arenas_[r][static_cast<std::size_t>(i)];
        const T was = before_[r][static_cast<std::size_t>(i)];
        const std::int64_t at = i - layout.output;
        if (at >= 0 && at < layout.output_count) {
          const Wide wanted = expected[static_cast<std::size_t>(at)];
          if (!equal(got, wanted)) {
            return "rank " + std::to_string(rank) + " output[" + std::to_string(at) + "] is " +
                   std::to_string(got) + ", not " + std::to_string(wanted);
          }
        } else if (std::memcmp(&got, &was, sizeof(T)) != 0) {
          return "rank " + std::to_string(rank) + " changed element " + std::to_string(i - layout.input) +
                 " (counted from its input), which is not its output";
        }
      }
    }
    return "";
  }

 private:
  static constexpr DType dtype() {
    if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
    if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
    return DType::kInt64;
  }

  // Integers: any 64 bits, so that a part added twice or not at all cannot go unseen. Floats:
  // within (-1, 1).
  static T any_value(std::mt19937_64& random) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(random());
    return static_cast<T>(static_cast<double>(static_cast<std::int64_t>(random())) / 9.3e18);
  }

  std::span<const T> region(const std::vector<std::vector<T>>& arenas, int rank, Region which) const {
    const auto r = static_cast<std::size_t>(rank);
    return std::span(arenas[r]).subspan(static_cast<std::size_t>(layouts_[r].base(which)),
                                        static_cast<std::size_t>(layouts_[r].count(which)));
  }
  std::span<const T> input_before(int rank) const { return region(before_, rank, Region::kInput); }
  std::span<const T> output_before(int rank) const { return region(before_, rank, Region::kOutput); }

  // The sum over the first `ranks` ranks (0: all) of `count` elements that each holds at `offset`
  // of its Input or (all_reduce, scan) Output.
  template <class Wide>
  std::vector<Wide> sum(Region which, std::int64_t offset, std::int64_t count, int ranks = 0) const {
    using Adder = std::conditional_t<std::is_integral_v<Wide>, std::uint64_t, Wide>;  // unsigned: may wrap
    std::vector<Adder> sums(static_cast<std::size_t>(count), Adder{0});
    for (int rank = 0; rank < (ranks > 0 ? ranks : call_.size); ++rank) {
      const auto part = region(before_, rank, which).subspan(static_cast<std::size_t>(offset), sums.size());
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<Adder>(part[i]);
    }
    return std::vector<Wide>(sums.begin(), sums.end());
  }

  template <class Wide>
  std::vector<Wide> reference(int rank) const {
    std::vector<Wide> expected;
    const auto append = [&expected](std::span<const T> values) {
      expected.insert(expected.end(), values.begin(), values.end());
    };
    const bool is_root = rank == call_.root;
    switch (call_.algorithm->kind) {
      case OpKind::kAllReduce:
        return sum<Wide>(Region::kOutput, 0, call_.count);
      case OpKind::kScan:
        return sum<Wide>(Region::kOutput, 0, call_.count, rank + 1);
      case OpKind::kExscan:
        if (rank > 0) return sum<Wide>(Region::kOutput, 0, call_.count, rank);
        append(output_before(0));
        break;
      case OpKind::kReduce:
        if (is_root) return sum<Wide>(Region::kInput, 0, call_.count);
        break;
      case OpKind::kBroadcast:
        append(output_before(call_.root));
        break;
      case OpKind::kAllGather:
      case OpKind::kGather:
        if (call_.algorithm->kind == OpKind::kGather && !is_root) break;
        for (int i = 0; i < call_.size; ++i) append(input_before(i));
        break;
      case OpKind::kReduceScatter:
        return sum<Wide>(Region::kInput, call_.offset(rank), call_.block(rank));
      case OpKind::kScatter:
        append(input_before(call_.root)
                   .subspan(static_cast<std::size_t>(call_.offset(rank)),
                            static_cast<std::size_t>(call_.block(rank))));
        break;
      case OpKind::kAllToAll:
        for (int i = 0; i < call_.size; ++i) {
          std::int64_t offset = 0;
          for (int to = 0; to < rank; ++to) offset += call_.block(i, to);
          append(input_before(i).subspan(static_cast<std::size_t>(offset),
                                         static_cast<std::size_t>(call_.block(i, rank))));
        }
        break;
      default:
        break;
    }
    return expected;
  }

  const Call call_;
  std::vector<Schedule> schedules_;
  std::vector<Layout> layouts_;
  std::vector<std::vector<T>> arenas_, before_;
};

}  // namespace altorch::proof
