// SPDX-License-Identifier: BSD-3-Clause
// What docs/windows.md says of order, raced by streams of GPUs, or of fakes: the host enqueues many
// rounds at once, and the streams keep each other in step by signals. What a rank has seen goes to
// a log in pinned memory, which the host looks through when all streams are there. Who does what
// changes from batch to batch, so that every rank's GPU has every part.
#pragma once

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/thread_group.h"
#include "transports/shm/litmus.h"
#include "windows/exported.h"
#include "windows/window.h"

namespace altorch::device_litmus {

using shm::litmus::draw;
using shm::litmus::Race;

constexpr std::chrono::seconds kPatience{60};
constexpr std::size_t kAtOnce = 64;  // rounds: more than a stream takes would hold the host up
constexpr std::size_t kPlaces =
    16;  // rounds, each with numbers of its own, between two barriers of the streams
constexpr std::size_t kScratch = 64 << 10;

// A rank's GPU: a device for what the test does itself, and where windows get theirs.
struct RaceGpu {
  std::unique_ptr<Device> device;
  WindowGpu gpu;
};
using MakeGpu = std::function<RaceGpu(int rank)>;

// A rank with its stream, a window over `words` numbers of every rank, and room in the log for
// `seen` of each round.
class Racer {
 public:
  Racer(Communicator& group, RaceGpu own, std::size_t words, std::size_t seen)
      : group_(group),
        own_(std::move(own)),
        stream_(device().make_stream()),
        memory_(exported(device(), words * sizeof(std::int64_t))),
        scratch_(device().allocate(2 * kScratch)),
        zeros_(device().allocate(words * sizeof(std::int64_t))),
        words_(words),
        one_(device().allocate(sizeof(std::int64_t))),
        log_(device().pin(kAtOnce * seen * sizeof(std::int64_t))),
        told_(device().pin(sizeof(Told))),
        seen_(seen) {
    window_ = open_window(group, memory_.get(), {words * sizeof(std::int64_t), DType::kInt64}, memory_,
                          kPatience, "", &own_.gpu);
    device().prepare_windows();
    log()[0] = 1;
    device().copy_to_device(one_.get(), log(), sizeof(std::int64_t), stream_);
    device().copy_on_device(scratch_.get(), scratch_.get() + kScratch, kScratch, stream_);
  }

  Device& device() const { return *own_.device; }
  Stream stream() const { return stream_; }
  std::int64_t* log() const { return reinterpret_cast<std::int64_t*>(log_.get()); }
  const std::int64_t* seen(std::size_t round) const { return log() + round * seen_; }

  // `place`: in numbers, from the beginning of the target's.
  void put(int peer, const std::int64_t* from, std::size_t count, std::size_t place, int slot) const {
    WindowCall call = to(Access::kPut, peer, count, place);
    call.from = from;
    call.slot = slot;
    run(call);
  }
  void add(int peer, std::size_t place) const {
    WindowCall call = to(Access::kAccumulate, peer, 1, place);
    call.from = one_.get();
    run(call);
  }
  void signal(int peer) const {
    WindowCall call = to(Access::kSignal, peer, 0);
    call.slot = 0;
    run(call);
  }
  void wait(int source) const { window_->enqueue_wait(source, 0, stream_, /*captured=*/false, kPatience); }
  // Three parts of what was put here, into the log.
  void take(std::size_t round, std::size_t count, std::size_t place) const {
    WindowCall call = to(Access::kGet, group_.rank(), seen_ / 3, place);
    call.rows = 3;
    call.stride = (count - seen_ / 3) / 2 * sizeof(std::int64_t);
    call.into = log() + round * seen_;
    run(call);
  }
  // So that what a batch has put is not taken for what the next one does.
  void clear() const {
    device().copy_on_device(memory_.get(), zeros_.get(), words_ * sizeof(std::int64_t), stream_);
  }
  // What fetch_add enqueues; the host waits for the number only where the peer's has to help.
  void look(int peer, std::size_t place, std::size_t round, std::size_t which) const {
    if (!window_->map(peer)) {
      WindowCall call = to(Access::kFetchAdd, peer, 1, place);
      run(call);
      log()[round * seen_ + which] = call.found;
      return;
    }
    WindowNumber job;
    job.at = window_->map(peer) + place * sizeof(std::int64_t);
    job.found = log() + round * seen_ + which;
    job.answered = &told().answered;
    job.ended = &told().ended;
    job.adds = 1;
    device().change_number(job, stream_);
  }
  // Now and then a rank is slow.
  void stumble(std::uint64_t round, std::uint64_t where) const {
    const std::uint64_t chance = draw(round, where);
    if (chance % 4 == 0)
      device().copy_on_device(scratch_.get(), scratch_.get() + kScratch, 1 + chance / 4 % kScratch, stream_);
  }
  // Until the stream is there.
  void finish(Race& race) {
    device().raise(told().done, ++finished_, stream_);
    race.until([&] { return told().done.reached(finished_); });
  }
  void close() const { window_->close(kPatience); }

 private:
  struct Told {
    Flag done;
    std::uint32_t answered, ended;
  };
  Told& told() const { return *reinterpret_cast<Told*>(told_.get()); }
  WindowCall to(Access access, int peer, std::size_t count, std::size_t place = 0) const {
    WindowCall call;
    call.access = access;
    call.peer = peer;
    call.offset = place * sizeof(std::int64_t);
    call.dtype = DType::kInt64;
    call.row_bytes = call.stride = count * sizeof(std::int64_t);
    call.stream = stream_;
    return call;
  }
  void run(WindowCall& call) const {
    bool ignored = true;
    window_->access(call, kPatience, ignored);
  }

  Communicator& group_;
  const RaceGpu own_;
  const Stream stream_;
  const std::shared_ptr<std::byte> memory_;
  const DeviceMemory scratch_, zeros_;
  const std::size_t words_;
  const DeviceMemory one_;
  const PinnedMemory log_, told_;
  const std::size_t seen_;
  std::uint32_t finished_ = 0;
  std::shared_ptr<Window> window_;
};

// What the threads of a race know of each other between two batches.
class Together {
 public:
  Together(int size, std::chrono::milliseconds time, std::uint64_t weight)
      : race(time, weight), racers(static_cast<std::size_t>(size)) {}
  const std::int64_t* seen(int rank, std::size_t at) const {
    return racers[static_cast<std::size_t>(rank)]->seen(at);
  }
  void barrier() {
    const std::size_t turn = arrived_.fetch_add(1) / racers.size();
    race.until([&] { return arrived_.load() / racers.size() > turn; });
  }

  Race race;
  std::vector<Racer*> racers;  // by rank
  bool goes_on = false;

 private:
  std::atomic<std::size_t> arrived_{0};
};

// Who has which part in a batch.
using Ranks = std::vector<int>;
inline Ranks ranks_of(std::size_t size, std::uint64_t batch) {
  Ranks ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), std::minstd_rand(static_cast<unsigned>(batch + 1)));
  return ranks;
}

struct Shape {
  std::size_t words, seen;
  std::size_t at_once = kAtOnce;
  std::uint64_t weight = 1;  // of a round: see Race
};
struct Turn {
  std::uint64_t round;
  std::size_t at;  // in its batch
  Ranks ranks;     // by part
  std::size_t place() const { return at % kPlaces; }
  std::int64_t count() const { return static_cast<std::int64_t>((round - 1) / kPlaces + 1); }  // of its place
  int operator[](int part) const { return ranks[static_cast<std::size_t>(part)]; }
};

// `enqueue(racer, part, turn)`: what the rank with that part has its stream do in a round.
// `check(together, turn)`, when that is done on all ranks, throws what is wrong. What the ranks
// have thrown.
template <class Enqueue, class Check>
std::vector<std::string> race(int size, const MakeGpu& make, std::chrono::milliseconds time,
                              const Shape& shape, const Enqueue& enqueue, const Check& check) {
  ThreadGroup group(size);
  Together together(size, time, shape.weight);
  return group.run([&](int rank, Communicator& communicator) {
    std::optional<Racer>
        racer;  // outlives the window, which the end of the group closes: then nothing waits for it
    try {
      racer.emplace(communicator, make(rank), shape.words, shape.seen);
      together.racers[static_cast<std::size_t>(rank)] = &*racer;
      racer->finish(together.race);
      for (std::uint64_t batch = 0;; ++batch) {
        const std::uint64_t first = batch * shape.at_once + 1;
        if (rank == 0) together.goes_on = together.race.goes_on(first);
        together.barrier();
        if (!together.goes_on) {
          // For who asks for a number of them, and sees how far a time goes.
          if (rank == 0)
            std::printf("[ rounds   ] %llu on %d ranks\n", static_cast<unsigned long long>(first - 1), size);
          break;
        }
        Turn turn{first, 0, ranks_of(together.racers.size(), batch)};
        const auto own = std::find(turn.ranks.begin(), turn.ranks.end(), rank) - turn.ranks.begin();
        for (; turn.at < shape.at_once; ++turn.at, ++turn.round) enqueue(*racer, static_cast<int>(own), turn);
        racer->finish(together.race);
        together.barrier();
        turn.round = first;
        for (turn.at = 0; rank == 0 && turn.at < shape.at_once; ++turn.at, ++turn.round)
          check(together, turn);
      }
      racer->close();
      together.barrier();
    } catch (const std::runtime_error& error) {
      together.race.stop();
      communicator.close(error.what());
      throw Error(ErrorKind::kInternal, error.what());
    }
  });
}

// What part 0 has put at the last part is there when that hears of it: from part 0 itself, in the
// same call, or where there are three, from part 1 in between. `count`: numbers that are put, 24 at
// least.
inline std::vector<std::string> message_passing(int size, std::size_t count, const MakeGpu& make,
                                                std::chrono::milliseconds time) {
  constexpr std::size_t kSeen = 24;
  const std::size_t at_once = std::clamp<std::size_t>((1 << 20) / count, 8, kAtOnce), words = at_once * count,
                    bytes = words * sizeof(std::int64_t);
  // Each round of a batch has numbers of its own, so that no rank waits for those that take them.
  const Shape shape{words, kSeen, at_once, std::max<std::uint64_t>(1, count / 64)};
  // What a rank puts in a batch's rounds: their numbers in it.
  struct Source {
    DeviceMemory memory;
    PinnedMemory filled;
    bool is_there = false;
  };
  std::vector<Source> sources(static_cast<std::size_t>(size));
  const MakeGpu with_source = [&](int rank) {
    RaceGpu own = make(rank);
    PinnedMemory filled = own.device->pin(bytes);
    for (std::size_t word = 0; word < words; ++word)
      reinterpret_cast<std::int64_t*>(filled.get())[word] = static_cast<std::int64_t>(word / count + 1);
    sources[static_cast<std::size_t>(rank)] = {own.device->allocate(bytes), std::move(filled), false};
    return own;
  };
  const auto enqueue = [&](Racer& racer, int part, const Turn& turn) {
    const int last = size - 1;
    const std::size_t place = turn.at * count;
    Source& source = sources[static_cast<std::size_t>(turn[part])];
    if (part == 0) {
      if (!std::exchange(source.is_there, true))
        racer.device().copy_to_device(source.memory.get(), source.filled.get(), bytes, racer.stream());
      const auto* const from = reinterpret_cast<const std::int64_t*>(source.memory.get()) + place;
      racer.put(turn[last], from, count, place, last == 1 ? 0 : kNoSlot);
      racer.stumble(turn.round, 1);
      if (last > 1) racer.signal(turn[1]);
    } else if (part < last) {
      racer.wait(turn[0]);
      racer.stumble(turn.round, 2);
      racer.signal(turn[last]);
    } else {
      racer.wait(turn[last - 1]);
      racer.take(turn.at, count, place);
      if (turn.at + 1 == at_once) racer.clear();
    }
  };
  const auto check = [&](Together& together, const Turn& turn) {
    const std::int64_t* const seen = together.seen(turn[size - 1], turn.at);
    const auto wanted = static_cast<std::int64_t>(turn.at + 1);
    const bool right = std::all_of(seen, seen + kSeen, [&](std::int64_t each) { return each == wanted; });
    together.race.expect(right, "data came late", turn.round);
  };
  return race(size, with_source, time, shape, enqueue, check);
}

// So that they begin some rounds at one time.
inline void start_together(const Racer& racer, int part, const Turn& turn) {
  racer.stumble(turn.round, static_cast<std::uint64_t>(part));
  if (turn.place() != 0) return;
  for (const int rank : turn.ranks) {
    if (rank != turn[part]) racer.signal(rank);
  }
  for (const int rank : turn.ranks) {
    if (rank != turn[part]) racer.wait(rank);
  }
}

// Of two ranks that raise a counter and then read the other's, at least one sees the other's raise.
// The counters are in the memory of ranks 0 and 1, so each rank raises a local and a remote one in
// turn.
inline std::vector<std::string> store_buffering(const MakeGpu& make, std::chrono::milliseconds time) {
  const auto enqueue = [](Racer& racer, int part, const Turn& turn) {
    start_together(racer, part, turn);
    racer.add(part, turn.place());
    racer.look(1 - part, turn.place(), turn.at, 0);
  };
  const auto check = [](Together& together, const Turn& turn) {
    const std::int64_t round = turn.count();
    const std::int64_t first = *together.seen(turn[0], turn.at), second = *together.seen(turn[1], turn.at);
    together.race.expect(first >= round || second >= round, "neither has seen the other", turn.round);
    for (const std::int64_t each : {first, second})
      together.race.expect(each == round || each == round - 1, "a count is wrong", turn.round);
  };
  return race(2, make, time, {kPlaces, 1}, enqueue, check);
}

// Two counters are seen to rise in one order by all.
inline std::vector<std::string> independent_reads(const MakeGpu& make, std::chrono::milliseconds time) {
  const auto enqueue = [](Racer& racer, int part, const Turn& turn) {
    start_together(racer, part, turn);
    if (part < 2) return racer.add(part, turn.place());
    racer.look(part - 2, turn.place(), turn.at, 0);
    racer.look(3 - part, turn.place(), turn.at, 1);
  };
  const auto check = [](Together& together, const Turn& turn) {
    const std::int64_t round = turn.count();
    const auto parted = [&](int part) {
      const std::int64_t* const seen = together.seen(turn[part], turn.at);
      return seen[0] >= round && seen[1] < round;
    };
    together.race.expect(!parted(2) || !parted(3), "two ranks saw two orders", turn.round);
  };
  return race(4, make, time, {kPlaces, 2}, enqueue, check);
}

}  // namespace altorch::device_litmus
