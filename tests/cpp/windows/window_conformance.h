// SPDX-License-Identifier: BSD-3-Clause
// What every way to the memory of other ranks must do. Ranks are threads or processes, each with a
// communicator and memory of its own; what is wrong is thrown.
#pragma once

#include <concepts>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "reduction/reduce.h"
#include "runtime/communicator.h"
#include "transports/conformance.h"
#include "windows/window.h"

namespace altorch::conformance {

constexpr std::chrono::seconds kPatience{30};

// Where a rank's memory comes from; on a GPU also where its calls take place.
struct Allocate {
  using Make = std::function<std::shared_ptr<std::byte>(std::size_t)>;
  template <class How>
  requires std::constructible_from<Make, How> Allocate(How how) : make(std::move(how)) {}
  std::shared_ptr<std::byte> operator()(std::size_t bytes) const { return make(bytes); }

  Make make;
  const WindowGpu* gpu = nullptr;
  void* stream = nullptr;
};

// A window over `count` elements on every rank, filled by `value(index)`.
template <class Value>
struct Opened {
  std::shared_ptr<std::byte> memory;
  std::span<Value> values;
  std::shared_ptr<Window> window;
  Communicator& group;
  const bool on_gpu;
  void* const stream;

  Opened(Communicator& communicator, const Allocate& allocate, DType dtype, std::size_t count)
      : group(communicator), on_gpu(allocate.gpu), stream(allocate.stream) {
    const std::size_t bytes = count * sizeof(Value);
    memory = allocate(bytes + 1);
    values = {reinterpret_cast<Value*>(memory.get()), count};
    std::fill(values.begin(), values.end(), Value{});
    window = open_window(communicator, memory.get(), {bytes, dtype}, memory, kPatience, "", allocate.gpu);
  }
  int rank() const { return group.rank(); }
  int size() const { return group.size(); }
  int next() const { return (rank() + 1) % size(); }
  int before() const { return (rank() + size() - 1) % size(); }

  WindowCall call(Access access, int peer, std::size_t offset, std::size_t count) const {
    WindowCall made;
    made.access = access;
    made.peer = peer;
    made.stream = stream;
    made.dtype = window->registered(rank()).dtype;
    made.offset = offset * sizeof(Value);
    made.row_bytes = made.stride = count * sizeof(Value);
    return made;
  }
  WindowCall run(WindowCall made) const {
    bool free = false;
    window->access(made, kPatience, free);
    expect(free, "a buffer is held back");
    window->drain(kPatience);
    return made;
  }
  void put(int peer, std::size_t offset, const std::vector<Value>& from, int slot = kNoSlot) const {
    WindowCall made = call(Access::kPut, peer, offset, from.size());
    made.from = from.data();
    made.slot = slot;
    run(std::move(made));
  }
  std::vector<Value> get(int peer, std::size_t offset, std::size_t count) const {
    std::vector<Value> into(count);
    WindowCall made = call(Access::kGet, peer, offset, count);
    made.into = into.data();
    run(std::move(made));
    return into;
  }
  void signal(int peer, int slot) const {
    WindowCall made = call(Access::kSignal, peer, 0, 0);
    made.slot = slot;
    run(std::move(made));
  }
  std::int64_t fetch_add(int peer, std::size_t offset, std::int64_t operand) const {
    WindowCall made = call(Access::kFetchAdd, peer, offset, 1);
    made.operand = operand;
    return run(std::move(made)).found;
  }
  std::int64_t compare_swap(int peer, std::size_t offset, std::int64_t expected, std::int64_t wanted) const {
    WindowCall made = call(Access::kCompareSwap, peer, offset, 1);
    made.expected = expected;
    made.operand = wanted;
    return run(std::move(made)).found;
  }
  void wait(int source, int slot) const {
    if (!on_gpu) return window->wait_signal(source, slot, kPatience);
    window->enqueue_wait(source, slot, stream, /*captured=*/false, kPatience);
    window->drain(kPatience);
  }
  void barrier() const {
    Operation barrier;
    barrier.kind = OpKind::kBarrier;
    barrier.timeout = kPatience;
    barrier.sequence = group.next_sequence();
    bool free = false;
    group.run(barrier, free);
    expect(free, "a barrier holds something back");
  }
  void close() const { window->close(kPatience); }
};

// Sizes and places of every kind, there and back, and nothing beside them.
inline void windows_move(Communicator& group, const Allocate& allocate) {
  constexpr std::size_t kCount = 70000;
  const Opened<std::int32_t> opened(group, allocate, DType::kInt32, kCount);
  std::mt19937 random(7 + static_cast<unsigned>(group.rank()));
  const std::size_t rounds[][2] = {{0, 1}, {3, 5}, {17, 0}, {1000, 4096}, {1, kCount - 2}, {kCount - 1, 1}};
  for (const auto& [offset, count] : rounds) {
    std::vector<std::int32_t> sent(count);
    for (auto& each : sent) each = static_cast<std::int32_t>(random());
    std::fill(opened.values.begin(), opened.values.end(), -1);
    opened.barrier();
    opened.put(opened.next(), offset, sent, 0);
    opened.wait(opened.before(), 0);
    expect(opened.get(opened.next(), offset, count) == sent, "what was put is not what is got");
    opened.barrier();
    expect(std::all_of(opened.values.begin(), opened.values.begin() + static_cast<std::ptrdiff_t>(offset),
                       [](int each) { return each == -1; }) &&
               std::all_of(opened.values.begin() + static_cast<std::ptrdiff_t>(offset + count),
                           opened.values.end(), [](int each) { return each == -1; }),
           "a put has written beside its place");
    opened.barrier();
  }
  opened.close();
}

// Rows with room between them.
inline void windows_stride(Communicator& group, const Allocate& allocate) {
  constexpr std::size_t kRows = 9, kWidth = 11, kRow = 4;
  const Opened<std::int16_t> opened(group, allocate, DType::kInt16, kRows * kWidth);
  std::fill(opened.values.begin(), opened.values.end(), std::int16_t{-1});
  std::vector<std::int16_t> sent(kRows * kRow), back(kRows * kRow);
  std::iota(sent.begin(), sent.end(), static_cast<std::int16_t>(100 * group.rank()));
  const auto strided = [&](Access access) {
    WindowCall made = opened.call(access, opened.next(), 3, kRow);
    made.rows = kRows;
    made.stride = kWidth * sizeof(std::int16_t);
    return made;
  };
  opened.barrier();
  WindowCall put = strided(Access::kPut);
  put.from = sent.data();
  put.slot = 1;
  opened.run(std::move(put));
  opened.wait(opened.before(), 1);
  for (std::size_t at = 0; at < opened.values.size(); ++at) {
    const std::size_t row = at / kWidth, column = at % kWidth;
    const bool hit = column >= 3 && column < 3 + kRow;
    const auto wanted = hit ? 100 * opened.before() + static_cast<int>(row * kRow + column - 3) : -1;
    expect(opened.values[at] == wanted, "a row lies elsewhere");
  }
  opened.barrier();
  WindowCall get = strided(Access::kGet);
  get.into = back.data();
  opened.run(std::move(get));
  expect(back == sent, "rows do not come back");
  WindowCall sum = strided(Access::kAccumulate);
  sum.from = sent.data();
  opened.run(std::move(sum));
  opened.barrier();
  expect(opened.values[3] == 2 * 100 * opened.before(), "rows are not added");
  opened.close();
}

// All ranks count at one place.
inline void windows_count(Communicator& group, const Allocate& allocate) {
  const Opened<std::int64_t> opened(group, allocate, DType::kInt64, 3);
  const int times = opened.window->is_served() ? 20 : 200;
  opened.barrier();
  std::vector<std::int64_t> tickets;
  for (int time = 0; time < times; ++time) tickets.push_back(opened.fetch_add(0, 1, 1));
  for (std::size_t each = 1; each < tickets.size(); ++each)
    expect(tickets[each] > tickets[each - 1], "a number was drawn twice");
  // A number that no rank may miss: each raises it only from what it has seen.
  for (int time = 0; time < times / 4; ++time) {
    std::int64_t seen = opened.compare_swap(0, 2, -1, -1);
    while (true) {
      const std::int64_t found = opened.compare_swap(0, 2, seen, seen + 1);
      if (found == seen) break;
      seen = found;
    }
  }
  opened.barrier();
  if (group.rank() == 0) {
    expect(opened.values[0] == 0, "a place beside was changed");
    expect(opened.values[1] == times * group.size(), "the counter lost some");
    expect(opened.values[2] == times / 4 * group.size(), "compare_swap lost some");
  }
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  opened.barrier();
  if (group.rank() == 0) {
    opened.values[0] = most;
    expect(opened.fetch_add(0, 0, 1) == most && opened.values[0] == std::numeric_limits<std::int64_t>::min(),
           "a counter does not wrap");
  }
  opened.close();
}

// One place that ranks count in by different means, each of which must not miss the others.
inline void windows_count_in_every_way(Communicator& group, const Allocate& allocate) {
  const Opened<std::int32_t> opened(group, allocate, DType::kInt32, 3);
  const int times = opened.window->is_served() ? 60 : 200;
  opened.barrier();
  for (int time = 0; time < times; ++time) {
    const int way = (group.rank() + time / 20) % 3;
    if (way == 0) opened.fetch_add(0, 1, 1);
    if (way == 1) {
      const std::int32_t one = 1;
      WindowCall made = opened.call(Access::kAccumulate, 0, 1, 1);
      made.from = &one;
      opened.run(std::move(made));
    }
    for (std::int64_t seen = 0, found = -1; way == 2; seen = found) {
      found = opened.compare_swap(0, 1, seen, seen + 1);
      if (found == seen) break;
    }
  }
  opened.barrier();
  if (group.rank() == 0) {
    expect(opened.values[1] == times * group.size(), "one way of counting misses another");
    expect(opened.values[0] == 0 && opened.values[2] == 0, "a place beside was changed");
  }
  opened.close();
}

// To itself, from what overlaps with where it goes.
inline void windows_move_within(Communicator& group, const Allocate& allocate) {
  const Opened<std::int32_t> opened(group, allocate, DType::kInt32, 1000);
  std::iota(opened.values.begin(), opened.values.end(), 0);
  WindowCall put = opened.call(Access::kPut, opened.rank(), 1, 999);
  put.from = opened.values.data();
  put.slot = 0;
  opened.run(std::move(put));
  opened.wait(opened.rank(), 0);
  for (std::size_t at = 0; at < 1000; ++at)
    expect(opened.values[at] == (at == 0 ? 0 : static_cast<int>(at) - 1), "a put within is wrong");
  WindowCall get = opened.call(Access::kGet, opened.rank(), 1, 999);
  get.into = opened.values.data();
  opened.run(std::move(get));
  for (std::size_t at = 0; at < 1000; ++at)
    expect(opened.values[at] == (at < 999 ? static_cast<int>(at) : 998), "a get within is wrong");
  opened.barrier();
  opened.close();
}

// Every rank adds float32 to all ranks, and the ranks take the maximum of uint8 at rank 0.
inline void windows_accumulate(Communicator& group, const Allocate& allocate) {
  constexpr std::size_t kCount = 1001;
  const Opened<float> floats(group, allocate, DType::kFloat32, kCount);
  const Opened<std::uint8_t> bytes(group, allocate, DType::kUInt8, kCount);
  floats.barrier();
  std::vector<float> mine(kCount);
  for (std::size_t at = 0; at < kCount; ++at)
    mine[at] = static_cast<float>(at) + static_cast<float>(group.rank());
  for (int time = 0; time < 5; ++time) {
    for (int peer = 0; peer < group.size(); ++peer) {
      WindowCall made = floats.call(Access::kAccumulate, peer, 0, kCount);
      made.from = mine.data();
      floats.run(std::move(made));
    }
  }
  const std::vector<std::uint8_t> largest(kCount, static_cast<std::uint8_t>(group.rank() + 3));
  WindowCall made = bytes.call(Access::kAccumulate, 0, 0, kCount);
  made.op = ReduceOp::kMax;
  made.from = largest.data();
  bytes.run(std::move(made));
  floats.barrier();
  const int size = group.size();
  for (std::size_t at = 0; at < kCount; ++at) {
    const float wanted =
        5 * (static_cast<float>(at) * static_cast<float>(size) + static_cast<float>(size * (size - 1) / 2));
    expect(floats.values[at] == wanted, "a sum is wrong");
    if (group.rank() == 0) expect(bytes.values[at] == size + 2, "a maximum is wrong");
  }
  floats.close();
  bytes.close();
}

// Signals are counted, for each pair and slot apart; waits that no thread waits for end in their
// order.
inline void windows_signal(Communicator& group, const Allocate& allocate) {
  const Opened<std::int32_t> opened(group, allocate, DType::kInt32, 1);
  for (int time = 0; time < 3; ++time) {
    for (int slot = 0; slot < kSignalSlots; ++slot) opened.signal(opened.next(), slot);
  }
  for (int slot = kSignalSlots - 1; slot >= 0; --slot) {
    for (int time = 0; time < 3; ++time) opened.wait(opened.before(), slot);
  }
  opened.put(opened.rank(), 0, {7}, 3);  // to itself
  opened.wait(opened.rank(), 3);
  expect(opened.values[0] == 7, "a put to itself is not there");
  if (opened.on_gpu) return opened.close();  // what ends a wait on a stream ends the group
  try {
    opened.window->wait_signal(opened.before(), 0, std::chrono::milliseconds(150));
    expect(false, "a signal that no rank gave was there");
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::kTimeout, error.what());
  }
  opened.barrier();  // the group goes on
  std::vector<std::shared_ptr<WindowTask>> waits;
  for (int time = 0; time < 4; ++time) {
    waits.push_back(opened.window->start_wait(opened.before(), 2, kPatience));
    expect(!waits.back()->finished(), "a wait for nothing is over");
    opened.window->post(waits.back());
  }
  opened.barrier();
  for (int time = 0; time < 4; ++time) opened.signal(opened.next(), 2);
  for (const auto& wait : waits) {
    expect(group.wait(*wait, kPatience), "a wait does not end");
    expect(!wait->error, "a wait has failed");
  }
  opened.close();
}

// Many at once; each target has them in the order in which they were asked for.
inline void windows_keep_order(Communicator& group, const Allocate& allocate) {
  const Opened<std::int64_t> opened(group, allocate, DType::kInt64, 64);
  const int times = opened.window->is_served() ? 60 : 300;
  std::vector<std::vector<std::int64_t>> buffers;
  for (int time = 0; time < times; ++time) buffers.emplace_back(60, time);
  opened.barrier();
  std::vector<std::shared_ptr<WindowTask>> tasks;
  for (int time = 0; time < times; ++time) {
    const bool adds = time % 3 == 1;
    WindowCall made =
        opened.call(adds ? Access::kAccumulate : Access::kPut, opened.next(), adds ? 60 : 0, adds ? 4 : 60);
    made.from = buffers[static_cast<std::size_t>(time)].data();
    if (time == times - 1) made.slot = 5;
    if (opened.on_gpu) {
      bool free = true;
      opened.window->access(made, kPatience, free);
      continue;
    }
    tasks.push_back(opened.window->start(std::move(made), kPatience));
    if (!tasks.back()->finished()) opened.window->post(tasks.back());
  }
  opened.wait(opened.before(), 5);
  std::int64_t sum = 0;
  for (int time = 1; time < times; time += 3) sum += time;
  for (int at = 0; at < 64; ++at)
    expect(opened.values[static_cast<std::size_t>(at)] == (at < 60 ? times - 1 : sum),
           "an earlier put came later");
  opened.window->flush(kAnySource);
  for (const auto& task : tasks) expect(task->finished() && !task->error, "flush() left something");
  opened.close();
}

// Two threads, with a window each: the fences of one are nothing to the other.
inline void windows_fence(Communicator& group, const Allocate& allocate) {
  const Opened<std::int64_t> first(group, allocate, DType::kInt64, 1);
  const Opened<std::int64_t> second(group, allocate, DType::kInt64, 1);
  const auto run = [](const Opened<std::int64_t>& opened, std::string& wrong) {
    try {
      const int times = opened.window->is_served() ? 20 : 100;
      for (std::int64_t time = 1; time <= times; ++time) {
        opened.put(opened.next(), 0, {time});
        opened.window->fence(kPatience);
        expect(opened.values[0] == time, "a fence was over before its puts were there");
        opened.window->fence(kPatience);
      }
    } catch (const std::runtime_error& error) {
      wrong = error.what();
    }
  };
  std::string wrong_first, wrong_second;
  std::thread other([&] { run(second, wrong_second); });
  run(first, wrong_first);
  other.join();
  expect(wrong_first.empty() && wrong_second.empty(), wrong_first + wrong_second);
  first.close();
  second.close();
}

inline void windows_refuse(Communicator& group, const Allocate& allocate) {
  const Opened<float> opened(group, allocate, DType::kFloat32, 10 + static_cast<std::size_t>(group.rank()));
  const auto refuses = [&](WindowCall made, ErrorKind kind, const std::string& words) {
    const std::vector<float> data(100);
    made.from = data.data();
    bool free = false;
    try {
      opened.window->access(made, kPatience, free);
    } catch (const Error& error) {
      expect(error.kind() == kind && std::string(error.what()).find(words) != std::string::npos,
             error.what());
      return;
    }
    expect(false, "taken, though " + words);
  };
  const std::size_t theirs = opened.window->registered(opened.next()).bytes / sizeof(float);
  refuses(opened.call(Access::kPut, group.size(), 0, 1), ErrorKind::kInvalidArgument, "there is no rank");
  refuses(opened.call(Access::kPut, opened.next(), theirs, 1), ErrorKind::kInvalidArgument,
          "do not lie within");
  refuses(opened.call(Access::kPut, opened.next(), ~std::size_t{0} / 4, 1), ErrorKind::kInvalidArgument,
          "do not lie");
  refuses(opened.call(Access::kPut, opened.next(), theirs + 1, 0), ErrorKind::kInvalidArgument,
          "does not lie within");
  refuses(opened.call(Access::kAccumulate, opened.next(), ~std::size_t{0} / 4, 0),
          ErrorKind::kInvalidArgument, "does not lie");
  opened.put(opened.next(), theirs, {});
  WindowCall rows = opened.call(Access::kPut, opened.next(), 0, 1);
  rows.rows = 3, rows.stride = theirs * sizeof(float) / 2;
  refuses(std::move(rows), ErrorKind::kInvalidArgument, "do not lie within");
  WindowCall other = opened.call(Access::kPut, opened.next(), 0, 1);
  other.dtype = DType::kInt32;
  refuses(std::move(other), ErrorKind::kInvalidType, "has registered is of float32");
  refuses(opened.call(Access::kFetchAdd, opened.next(), 0, 1), ErrorKind::kInvalidType,
          "fetch_add takes int32");
  WindowCall slot = opened.call(Access::kSignal, opened.next(), 0, 0);
  slot.slot = kSignalSlots;
  refuses(std::move(slot), ErrorKind::kInvalidArgument, "no signal slot");
  opened.barrier();
  opened.put(opened.next(), theirs - 1, {1.0f});
  opened.close();
  opened.close();
  refuses(opened.call(Access::kPut, opened.next(), 0, 1), ErrorKind::kClosed, "window is closed");
  const Opened<float> again(group, allocate, DType::kFloat32, 0);  // nothing but signals
  again.signal(again.next(), 0);
  again.wait(again.before(), 0);
  again.close();
}

inline void window_conforms(Communicator& group, const Allocate& allocate) {
  windows_move(group, allocate);
  windows_stride(group, allocate);
  if (!allocate.gpu) windows_move_within(group, allocate);
  windows_count(group, allocate);
  windows_count_in_every_way(group, allocate);
  windows_accumulate(group, allocate);
  windows_signal(group, allocate);
  windows_keep_order(group, allocate);
  windows_fence(group, allocate);
  windows_refuse(group, allocate);
}

}  // namespace altorch::conformance
