// SPDX-License-Identifier: BSD-3-Clause
// What all native collectives must do, for the calls that they offer: every rank calls
// collectives_conform() at once.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "support/slow_memory.h"
#include "transports/conformance.h"
#include "transports/native_collectives.h"

namespace altorch::conformance {

template <typename T>
std::vector<T> values(int rank, std::size_t count) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<T>(static_cast<int>(i % 11) + rank + 1);
  return result;
}

// Where memory is slow, the vectors are just longer than the smallest areas.
inline constexpr std::size_t kReduced = kSlowMemory ? 6'000 : 20'000, kMoved = kSlowMemory ? 9'000 : 70'000;

struct Member {
  NativeCollectives& collectives;
  int rank, size;
  std::string_view protocol = {};  // the one that is asked for
};

inline void run(const Member& me, const Call& call) {
  expect(me.collectives.offers(call),
         std::string("not offered: ") + name_of(call.kind) + " of " + name_of(call.dtype));
  Request request;
  me.collectives.start(call, /*identity=*/1, me.protocol, request);
  std::optional<Error> error;
  AdaptiveWait wait;
  State state = me.collectives.test(request, error);
  for (; state == State::kPending; state = me.collectives.test(request, error)) wait.pause();
  expect(state == State::kDone, std::string(name_of(call.kind)) + ": " + (error ? error->what() : "failed"));
}

template <typename T>
void reduces(const Member& me, DType dtype, const std::map<ReduceOp, std::function<T(T, T)>>& ops) {
  const int rank = me.rank, size = me.size;
  const auto p = static_cast<std::size_t>(size);
  for (const auto& [op, combine] : ops) {
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, kReduced}) {
      const std::size_t total = count * p;
      std::vector<T> expected = values<T>(0, total);
      for (int r = 1; r < size; ++r) {
        std::vector<T> next = values<T>(r, total);
        for (std::size_t i = 0; i < total; ++i) expected[i] = combine(expected[i], next[i]);
      }
      if (op == ReduceOp::kAvg && me.collectives.finishes_reductions()) {
        for (T& value : expected) value = static_cast<T>(value / static_cast<T>(size));
      }
      const std::vector<T> own = values<T>(rank, total);
      const std::string what = std::string(name_of(op)) + " of " + name_of(dtype);
      Call call{OpKind::kAllReduce, dtype, op};
      std::vector<T> buffer = own;
      call.output = buffer.data();
      call.count = static_cast<std::int64_t>(total);
      run(me, call);
      expect(buffer == expected, "all_reduce " + what);
      // To each root, with another output and in place.
      for (int root = 0; root < size; ++root) {
        for (bool in_place : {false, true}) {
          std::vector<T> input = own, output(total);
          call =
              Call{OpKind::kReduce, dtype, op, root, input.data(), in_place ? input.data() : output.data()};
          call.count = static_cast<std::int64_t>(total);
          run(me, call);
          if (rank == root) expect((in_place ? input : output) == expected, "reduce " + what);
          if (rank != root) expect(input == own, "reduce changes the input");
        }
      }
      // Even, in place, uneven (everything for the last rank).
      const T* own_part = expected.data() + static_cast<std::size_t>(rank) * count;
      for (bool in_place : {false, true}) {
        std::vector<T> input = own, output(count);
        T* target = in_place ? input.data() + static_cast<std::size_t>(rank) * count : output.data();
        call = Call{OpKind::kReduceScatter, dtype, op, 0, input.data(), target};
        call.count = static_cast<std::int64_t>(count);
        run(me, call);
        expect(std::equal(target, target + count, own_part), "reduce_scatter " + what);
      }
      std::vector<std::int64_t> counts(p, 0);
      counts.back() = static_cast<std::int64_t>(total);
      std::vector<T> output(rank == size - 1 ? total : 0);
      call = Call{OpKind::kReduceScatter, dtype, op, 0, own.data(), output.data()};
      call.input_counts = counts;
      run(me, call);
      if (rank == size - 1) expect(output == expected, "uneven reduce_scatter " + what);
    }
  }
}

inline void moves(const Member& me) {
  const int rank = me.rank, size = me.size;
  const auto p = static_cast<std::size_t>(size), self = static_cast<std::size_t>(rank);
  using T = std::int16_t;
  const DType dtype = DType::kFloat16;
  run(me, Call{OpKind::kBarrier});
  for (std::size_t count : {std::size_t{0}, std::size_t{3}, kMoved}) {
    auto block = [&](std::size_t from, std::size_t to, std::size_t n) {
      std::vector<T> data(n);
      for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<T>(from * 1000 + to * 100 + i % 97);
      return data;
    };
    auto even = static_cast<std::int64_t>(count);
    for (int root = 0; root < size; ++root) {
      std::vector<T> data =
          rank == root ? block(static_cast<std::size_t>(root), 0, count) : std::vector<T>(count);
      Call call{OpKind::kBroadcast, dtype, ReduceOp::kSum, root, nullptr, data.data(), even};
      run(me, call);
      expect(data == block(static_cast<std::size_t>(root), 0, count), "broadcast");
    }
    // Uneven: rank r has count + r elements.
    for (bool uneven : {false, true}) {
      std::vector<std::int64_t> counts;
      std::vector<T> all;
      std::size_t own_offset = 0;
      for (std::size_t r = 0; r < p; ++r) {
        counts.push_back(even + (uneven ? static_cast<std::int64_t>(r) : 0));
        if (r == self) own_offset = all.size();
        auto part = block(r, 0, static_cast<std::size_t>(counts.back()));
        all.insert(all.end(), part.begin(), part.end());
      }
      const std::vector<T> own = block(self, 0, static_cast<std::size_t>(counts[self]));
      for (bool in_place : {false, true}) {
        std::vector<T> output(all.size());
        if (in_place)
          std::copy(own.begin(), own.end(), output.begin() + static_cast<std::ptrdiff_t>(own_offset));
        Call call{OpKind::kAllGather, dtype};
        call.input = in_place ? output.data() + own_offset : own.data();
        call.output = output.data();
        call.count = counts[self];
        if (uneven) call.output_counts = counts;
        run(me, call);
        expect(output == all, "all_gather");
      }
      for (int root = 0; root < size; ++root) {
        std::vector<T> output(rank == root ? all.size() : 0);
        Call call{OpKind::kGather, dtype, ReduceOp::kSum, root, own.data(), output.data(), counts[self]};
        if (uneven && rank == root) call.output_counts = counts;
        run(me, call);
        if (rank == root) expect(output == all, "gather");
        std::vector<T> part(own.size());
        call = Call{OpKind::kScatter, dtype,       ReduceOp::kSum, root, rank == root ? all.data() : nullptr,
                    part.data(),      counts[self]};
        if (uneven && rank == root) call.input_counts = counts;
        run(me, call);
        expect(part == own, "scatter");
      }
    }
    std::vector<T> input, output(count * p), expected;
    for (std::size_t r = 0; r < p; ++r) {
      auto out = block(self, r, count), in = block(r, self, count);
      input.insert(input.end(), out.begin(), out.end());
      expected.insert(expected.end(), in.begin(), in.end());
    }
    Call call{OpKind::kAllToAll, dtype, ReduceOp::kSum, 0, input.data(), output.data(), even};
    run(me, call);
    expect(output == expected, "all_to_all");
  }
}

inline void reduces_types(const Member& me) {
  using Bits = std::map<ReduceOp, std::function<std::int32_t(std::int32_t, std::int32_t)>>;
  reduces<std::int32_t>(me, DType::kInt32,
                        Bits{{ReduceOp::kSum, std::plus<>()},
                             {ReduceOp::kProduct, std::multiplies<>()},
                             {ReduceOp::kMin, [](int a, int b) { return std::min(a, b); }},
                             {ReduceOp::kMax, [](int a, int b) { return std::max(a, b); }},
                             {ReduceOp::kBand, std::bit_and<>()},
                             {ReduceOp::kBor, std::bit_or<>()},
                             {ReduceOp::kBxor, std::bit_xor<>()}});
  auto max = [](auto a, auto b) { return std::max(a, b); };
  reduces<std::uint8_t>(me, DType::kUInt8, {{ReduceOp::kSum, std::plus<>()}, {ReduceOp::kMax, max}});
  reduces<std::int8_t>(me, DType::kInt8, {{ReduceOp::kSum, std::plus<>()}, {ReduceOp::kMax, max}});
  reduces<std::uint16_t>(me, DType::kUInt16, {{ReduceOp::kMax, max}});
  reduces<std::int16_t>(me, DType::kInt16, {{ReduceOp::kSum, std::plus<>()}});
  reduces<std::uint32_t>(me, DType::kUInt32, {{ReduceOp::kSum, std::plus<>()}});
  reduces<std::uint64_t>(me, DType::kUInt64, {{ReduceOp::kMax, max}});
  reduces<std::int64_t>(me, DType::kInt64,
                        {{ReduceOp::kSum, std::plus<>()}, {ReduceOp::kAvg, std::plus<>()}});
  reduces<float>(me, DType::kFloat32,
                 {{ReduceOp::kSum, std::plus<>()}, {ReduceOp::kPremulSum, std::plus<>()}});
  reduces<double>(me, DType::kFloat64,
                  {{ReduceOp::kSum, std::plus<>()}, {ReduceOp::kProduct, std::multiplies<>()}});
  reduces<std::complex<float>>(me, DType::kComplex64, {{ReduceOp::kSum, std::plus<>()}});
  reduces<std::complex<double>>(me, DType::kComplex128, {{ReduceOp::kSum, std::plus<>()}});
}

// bool as torch has it.
inline void reduces_bool(const Member& me) {
  const int rank = me.rank, size = me.size;
  struct Row {
    ReduceOp op;
    bool expected;
  };
  const bool odd = (size - 1) % 2 != 0;  // all but rank 0 have true
  for (Row row : {Row{ReduceOp::kSum, size > 1}, Row{ReduceOp::kProduct, false}, Row{ReduceOp::kBxor, odd}}) {
    std::uint8_t value = rank == 0 ? 0 : 1;
    Call call{OpKind::kAllReduce, DType::kBool, row.op};
    call.output = &value;
    call.count = 1;
    run(me, call);
    expect(value == (row.expected ? 1 : 0), "all_reduce of bool");
  }
}

inline void collectives_conform(const Member& me) {
  reduces_types(me);
  reduces_bool(me);
  moves(me);
}

}  // namespace altorch::conformance
