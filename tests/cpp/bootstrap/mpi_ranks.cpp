// One rank of a multi-process check of bootstrap/ and transports/mpi/: starts MPI as altorch does and puts it
// to work. tests/python/test_mpi_bootstrap.py starts as many as it wants, with or without a launcher.
//
//   altorch_mpi_ranks --library PATH --shims DIR [--rank R --size N --store DIR] [--checks LIST]
//
// Prints "ok rank R of N ..." and returns 0, or says what is wrong and returns 1.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/file_store.h"
#include "common/adaptive_wait.h"
#include "transports/mpi/channel.h"

namespace altorch {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

[[noreturn]] void fail(const std::string& text) {
  std::cerr << "FAILED: " << text << std::endl;
  std::_Exit(1);
}

void expect(bool condition, const std::string& text) {
  if (!condition) fail(text);
}

std::string describe(std::span<const Request> requests) {
  std::string text;
  for (const Request& request : requests) {
    if (request.handle == 0 && request.extra == nullptr) continue;
    text += (request.is_receive ? " receive of " : " send of ") + std::to_string(request.bytes) +
            " bytes, peer " + std::to_string(request.peer) + ";";
  }
  return text;
}

// Waits; returns the error that came, if any.
std::optional<Error> finish(Channel& channel, std::span<Request> requests) {
  std::optional<Error> error;
  AdaptiveWait wait;
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (true) {
    State state = channel.test(requests, error);
    if (state == State::kDone) return std::nullopt;
    if (state == State::kFailed) return error;
    expect(Clock::now() < deadline, "an operation did not finish in 20 s: " + describe(requests));
    wait.pause();
  }
}

void expect_done(Channel& channel, std::span<Request> requests, const char* what) {
  if (auto error = finish(channel, requests)) fail(std::string(what) + ": " + error->what());
}

void check_messages(Mpi& mpi, MpiGroup& group) {
  Channel& channel = group.channel();
  const int rank = channel.rank(), size = channel.size();
  // Every size to every rank, two tags out of order.
  for (std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300'000}, std::size_t{5'000'000}}) {
    std::vector<std::vector<unsigned char>> incoming(static_cast<std::size_t>(size) * 2);
    std::vector<unsigned char> outgoing(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      outgoing[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(rank));
    std::vector<Request> requests(static_cast<std::size_t>(size) * 4);
    std::size_t next = 0;
    for (int peer = 0; peer < size; ++peer) {
      for (int tag = 0; tag < 2; ++tag) {
        auto& buffer = incoming[static_cast<std::size_t>(peer * 2 + tag)];
        buffer.assign(bytes, 0);
        channel.receive(buffer.data(), bytes, peer, tag, requests[next++]);
      }
    }
    for (int peer = 0; peer < size; ++peer) {
      for (int tag = 1; tag >= 0; --tag) channel.send(outgoing.data(), bytes, peer, tag, requests[next++]);
    }
    expect_done(channel, requests, "messages");
    for (int peer = 0; peer < size; ++peer) {
      for (std::size_t i = 0; i < bytes; ++i) {
        expect(incoming[static_cast<std::size_t>(peer * 2)][i] ==
                   static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(peer)),
               "byte " + std::to_string(i) + " of " + std::to_string(bytes) + " from " +
                   std::to_string(peer) + " is wrong");
      }
    }
  }
  // From any source.
  if (rank == 0) {
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (int i = 1; i < size; ++i) {
      std::int64_t word = -1;
      Request request;
      channel.receive(&word, sizeof(word), kAnySource, 5, request);
      expect_done(channel, {&request, 1}, "receive from any source");
      expect(request.peer == word, "wrong source");
      expect(!seen[static_cast<std::size_t>(word)], "the same source twice");
      seen[static_cast<std::size_t>(word)] = true;
    }
  } else {
    std::int64_t word = rank;
    Request request;
    channel.send(&word, sizeof(word), 0, 5, request);
    expect_done(channel, {&request, 1}, "send");
  }
  (void)mpi;
}

void check_sizes(Channel& channel) {
  if (channel.size() < 2 || channel.rank() > 1) return;
  const int peer = 1 - channel.rank();
  auto send = [&](std::size_t bytes, int tag) {
    std::vector<char> data(bytes, 'x');
    Request request;
    channel.send(data.data(), bytes, peer, tag, request);
    expect_done(channel, {&request, 1}, "send");
  };
  auto receive = [&](std::size_t bytes, int tag, bool exact) {
    std::vector<char> data(bytes);
    Request request;
    request.exact = exact;
    channel.receive(data.data(), bytes, peer, tag, request);
    return finish(channel, {&request, 1});
  };
  if (channel.rank() == 0) {
    send(8, 1);
    send(8, 2);
    send(16, 3);
    // Nobody sends with this tag: the receive must come back.
    char byte;
    Request request;
    channel.receive(&byte, 1, peer, 9, request);
    std::optional<Error> error;
    expect(channel.test({&request, 1}, error) == State::kPending, "a receive without a message is done");
    expect(channel.cancel({&request, 1}), "a receive cannot be withdrawn");
    expect(channel.test({&request, 1}, error) == State::kDone, "a withdrawn request is in flight");
  } else {
    auto shorter = receive(16, 1, true);
    expect(shorter && shorter->kind() == ErrorKind::kMismatch, "too short a message passes");
    std::cout << "  as wanted: " << shorter->what() << std::endl;
    expect(!receive(16, 2, false), "a short message is refused where it is allowed");
    auto longer = receive(8, 3, true);
    expect(longer && longer->kind() == ErrorKind::kMismatch, "too long a message passes");
    std::cout << "  as wanted: " << longer->what() << std::endl;
  }
}

// Cut into pieces of 1000 bytes instead of 1 GiB.
void check_pieces(Mpi& mpi, std::intptr_t communicator, int rank, int size) {
  MpiChannel channel(mpi, communicator, rank, size, 1000);
  for (std::size_t bytes : {999u, 1000u, 1001u, 2000u, 123'456u}) {
    std::vector<char> out(bytes), in(bytes);
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(i ^ (i >> 8));
    Request requests[2];
    channel.receive(in.data(), bytes, kAnySource, 3, requests[0]);
    channel.send(out.data(), bytes, (rank + 1) % size, 3, requests[1]);
    expect_done(channel, requests, "long message");
    expect(in == out, "a long message arrives damaged");
    expect(requests[0].peer == (rank + size - 1) % size, "a long message has the wrong source");
    expect(mpi.barrier(std::chrono::seconds(20)), "barrier");
  }
  // Long to short, short to long, long to longer.
  struct Case {
    std::size_t sent, expected;
  };
  // 24: as long as the header, which would be taken for the message; 8 was its length once.
  for (Case test :
       {Case{5000, 500}, Case{500, 5000}, Case{5000, 7000}, Case{5000, 24}, Case{5000, 8}, Case{24, 5000}}) {
    if (size > 1 && rank == 0) {
      std::vector<char> out(test.sent);
      Request request;
      channel.send(out.data(), test.sent, 1, 4, request);
      finish(channel, {&request, 1});
    } else if (rank == 1) {
      std::vector<char> in(test.expected);
      Request request;
      channel.receive(in.data(), test.expected, 0, 4, request);
      auto error = finish(channel, {&request, 1});
      expect(error && error->kind() == ErrorKind::kMismatch, "a long message of the wrong size passes");
      // Take what was sent out of the way.
      std::vector<char> rest(1000);
      for (std::size_t left = test.sent > 1000 ? test.sent : 0; left > 0; left -= 1000) {
        channel.receive(rest.data(), 1000, 0, 4, request);
        finish(channel, {&request, 1});
      }
    }
    expect(mpi.barrier(std::chrono::seconds(20)), "barrier");
  }
}

template <typename T>
std::vector<T> values(int rank, std::size_t count) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<T>(static_cast<int>(i % 11) + rank + 1);
  return result;
}

void run(MpiGroup& group, const Call& call) {
  expect(group.collectives().offers(call),
         std::string("not offered: ") + name_of(call.kind) + " of " + name_of(call.dtype));
  Request request;
  group.collectives().start(call, request);
  expect_done(group.channel(), {&request, 1}, name_of(call.kind));
}

template <typename T>
void check_reductions(MpiGroup& group, DType dtype, const std::map<ReduceOp, std::function<T(T, T)>>& ops) {
  const int rank = group.channel().rank(), size = group.channel().size();
  const auto p = static_cast<std::size_t>(size);
  for (const auto& [op, combine] : ops) {
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
      const std::size_t total = count * p;
      std::vector<T> expected = values<T>(0, total);
      for (int r = 1; r < size; ++r) {
        std::vector<T> next = values<T>(r, total);
        for (std::size_t i = 0; i < total; ++i) expected[i] = combine(expected[i], next[i]);
      }
      const std::vector<T> own = values<T>(rank, total);
      const std::string what = std::string(name_of(op)) + " of " + name_of(dtype);
      Call call{OpKind::kAllReduce, dtype, op};
      std::vector<T> buffer = own;
      call.output = buffer.data();
      call.count = static_cast<std::int64_t>(total);
      run(group, call);
      expect(buffer == expected, "all_reduce " + what);
      // To each root, with another output and in place.
      for (int root = 0; root < size; ++root) {
        for (bool in_place : {false, true}) {
          std::vector<T> input = own, output(total);
          call =
              Call{OpKind::kReduce, dtype, op, root, input.data(), in_place ? input.data() : output.data()};
          call.count = static_cast<std::int64_t>(total);
          run(group, call);
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
        run(group, call);
        expect(std::memcmp(target, own_part, count * sizeof(T)) == 0, "reduce_scatter " + what);
      }
      std::vector<std::int64_t> counts(p, 0);
      counts.back() = static_cast<std::int64_t>(total);
      std::vector<T> output(rank == size - 1 ? total : 0);
      call = Call{OpKind::kReduceScatter, dtype, op, 0, own.data(), output.data()};
      call.input_counts = counts;
      run(group, call);
      if (rank == size - 1) expect(output == expected, "uneven reduce_scatter " + what);
    }
  }
}

void check_moves(MpiGroup& group) {
  const int rank = group.channel().rank(), size = group.channel().size();
  const auto p = static_cast<std::size_t>(size), me = static_cast<std::size_t>(rank);
  using T = std::int16_t;
  const DType dtype = DType::kFloat16;
  run(group, Call{OpKind::kBarrier});
  for (std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{70'000}}) {
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
      run(group, call);
      expect(data == block(static_cast<std::size_t>(root), 0, count), "broadcast");
    }
    // Uneven: rank r has count + r elements.
    for (bool uneven : {false, true}) {
      std::vector<std::int64_t> counts;
      std::vector<T> all;
      std::size_t own_offset = 0;
      for (std::size_t r = 0; r < p; ++r) {
        counts.push_back(even + (uneven ? static_cast<std::int64_t>(r) : 0));
        if (r == me) own_offset = all.size();
        auto part = block(r, 0, static_cast<std::size_t>(counts.back()));
        all.insert(all.end(), part.begin(), part.end());
      }
      const std::vector<T> own = block(me, 0, static_cast<std::size_t>(counts[me]));
      for (bool in_place : {false, true}) {
        std::vector<T> output(all.size());
        if (in_place)
          std::copy(own.begin(), own.end(), output.begin() + static_cast<std::ptrdiff_t>(own_offset));
        Call call{OpKind::kAllGather, dtype};
        call.input = in_place ? output.data() + own_offset : own.data();
        call.output = output.data();
        call.count = counts[me];
        if (uneven) call.output_counts = counts;
        run(group, call);
        expect(output == all, "all_gather");
      }
      for (int root = 0; root < size; ++root) {
        std::vector<T> output(rank == root ? all.size() : 0);
        Call call{OpKind::kGather, dtype, ReduceOp::kSum, root, own.data(), output.data(), counts[me]};
        if (uneven && rank == root) call.output_counts = counts;
        run(group, call);
        if (rank == root) expect(output == all, "gather");
        std::vector<T> part(own.size());
        call = Call{OpKind::kScatter, dtype,     ReduceOp::kSum, root, rank == root ? all.data() : nullptr,
                    part.data(),      counts[me]};
        if (uneven && rank == root) call.input_counts = counts;
        run(group, call);
        expect(part == own, "scatter");
      }
    }
    std::vector<T> input, output(count * p), expected;
    for (std::size_t r = 0; r < p; ++r) {
      auto out = block(me, r, count), in = block(r, me, count);
      input.insert(input.end(), out.begin(), out.end());
      expected.insert(expected.end(), in.begin(), in.end());
    }
    Call call{OpKind::kAllToAll, dtype, ReduceOp::kSum, 0, input.data(), output.data(), even};
    run(group, call);
    expect(output == expected, "all_to_all");
  }
}

void check_collectives(MpiGroup& group) {
  using Bits = std::map<ReduceOp, std::function<std::int32_t(std::int32_t, std::int32_t)>>;
  check_reductions<std::int32_t>(group, DType::kInt32,
                                 Bits{{ReduceOp::kSum, std::plus<>()},
                                      {ReduceOp::kProduct, std::multiplies<>()},
                                      {ReduceOp::kMin, [](int a, int b) { return std::min(a, b); }},
                                      {ReduceOp::kMax, [](int a, int b) { return std::max(a, b); }},
                                      {ReduceOp::kBand, std::bit_and<>()},
                                      {ReduceOp::kBor, std::bit_or<>()},
                                      {ReduceOp::kBxor, std::bit_xor<>()}});
  auto max = [](auto a, auto b) { return std::max(a, b); };
  check_reductions<std::uint8_t>(group, DType::kUInt8,
                                 {{ReduceOp::kSum, std::plus<>()}, {ReduceOp::kMax, max}});
  check_reductions<std::int8_t>(group, DType::kInt8,
                                {{ReduceOp::kSum, std::plus<>()}, {ReduceOp::kMax, max}});
  check_reductions<std::uint16_t>(group, DType::kUInt16, {{ReduceOp::kMax, max}});
  check_reductions<std::int16_t>(group, DType::kInt16, {{ReduceOp::kSum, std::plus<>()}});
  check_reductions<std::uint32_t>(group, DType::kUInt32, {{ReduceOp::kSum, std::plus<>()}});
  check_reductions<std::uint64_t>(group, DType::kUInt64, {{ReduceOp::kMax, max}});
  check_reductions<std::int64_t>(group, DType::kInt64,
                                 {{ReduceOp::kSum, std::plus<>()}, {ReduceOp::kAvg, std::plus<>()}});
  check_reductions<float>(group, DType::kFloat32,
                          {{ReduceOp::kSum, std::plus<>()}, {ReduceOp::kPremulSum, std::plus<>()}});
  check_reductions<double>(group, DType::kFloat64,
                           {{ReduceOp::kSum, std::plus<>()}, {ReduceOp::kProduct, std::multiplies<>()}});
  check_reductions<std::complex<float>>(group, DType::kComplex64, {{ReduceOp::kSum, std::plus<>()}});
  check_reductions<std::complex<double>>(group, DType::kComplex128, {{ReduceOp::kSum, std::plus<>()}});
  check_moves(group);
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    Call half{OpKind::kAllReduce, DType::kBFloat16, op};
    expect(!group.collectives().offers(half), "a reduction of bfloat16 is offered");
  }
  Call minimum{OpKind::kAllReduce, DType::kFloat32, ReduceOp::kMin};
  expect(!group.collectives().offers(minimum), "MIN of float32 is offered, which loses NaN");
}

// bool as torch has it.
void check_bool(MpiGroup& group) {
  const int rank = group.channel().rank(), size = group.channel().size();
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
    run(group, call);
    expect(value == (row.expected ? 1 : 0), "all_reduce of bool");
  }
}

void check_groups(Mpi& mpi, int rounds) {
  // A group of the odd ranks and one of the even, in reverse order.
  std::vector<int> members;
  for (int r = mpi.size() - 1; r >= 0; --r) {
    if (r % 2 == mpi.rank() % 2) members.push_back(r);
  }
  const auto begin = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    auto group = mpi.create_group(members, i % 1000);
    std::int32_t one = 1;
    Call call{OpKind::kAllReduce, DType::kInt32};
    call.output = &one;
    call.count = 1;
    run(*group, call);
    expect(one == static_cast<int>(members.size()), "all_reduce in a subgroup");
    expect(members[static_cast<std::size_t>(group->channel().rank())] == mpi.rank(), "rank in a subgroup");
  }
  if (mpi.rank() == 0)
    std::cout << "  " << rounds << " groups, " << milliseconds_since(begin) / rounds << " ms each"
              << std::endl;
}

// Rank 0 waits inside MPI for rank 1, which never comes: both go on, and MPI is given up where it is stuck.
void check_lost_member(Mpi& mpi, MpiGroup& group) {
  const std::vector<int> pair = {1, 0};  // not the world's order, for which MPI need not block
  if (mpi.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(3));
  if (mpi.rank() != 0) return;
  const GroupCreation creation{"pair", std::chrono::milliseconds(500)};
  const auto begin = Clock::now();
  std::string text;
  try {
    mpi.create_group(pair, 5, creation);
  } catch (const Error& error) {
    text = error.what();
  }
  expect(text.find("group 'pair' was not done after 0.5 s") != std::string::npos, "no deadline: " + text);
  expect(milliseconds_since(begin) < 2500, "the deadline is late");
  Request request;
  std::optional<Error> error;
  char byte = 0;
  group.channel().send(&byte, 1, 1, 0, request);
  expect(group.channel().test({&request, 1}, error) == State::kFailed, "a message passes the stuck thread");
  expect(std::string(error->what()).find("held up by the creation of group 'pair'") != std::string::npos,
         error->what());
  bool refused = false;
  try {
    mpi.exchange("x");
  } catch (const Error&) {
    refused = true;
  }
  expect(refused && !mpi.usable(), "MPI is usable though a thread is stuck in it");
}

void time_all_reduce(MpiGroup& group) {
  for (std::int64_t count : {2, 256, 16'384, 262'144}) {
    std::vector<float> data(static_cast<std::size_t>(count), 1.0f);
    Call call{OpKind::kAllReduce, DType::kFloat32};
    call.output = data.data();
    call.count = count;
    const int repeats = count > 100'000 ? 50 : 2000;
    for (int i = 0; i < repeats / 10; ++i) run(group, call);
    const auto begin = Clock::now();
    for (int i = 0; i < repeats; ++i) run(group, call);
    if (group.channel().rank() == 0) {
      std::cout << "  all_reduce of " << count * 4 << " bytes: " << milliseconds_since(begin) * 1000 / repeats
                << " us" << std::endl;
    }
  }
}

// As containers without SYS_PTRACE and yama do it.
void refuse_cross_memory_attach() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter = {5, program};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  expect(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "no seccomp filter here");
}

}  // namespace

int main_of_rank(const std::map<std::string, std::string>& arguments) {
  auto text = [&](const char* name, const char* otherwise) {
    auto found = arguments.find(name);
    return found == arguments.end() ? std::string(otherwise) : found->second;
  };
  BootstrapOptions options;
  options.library = text("--library", "");
  options.shim_directory = text("--shims", "");
  options.rank = std::stoi(text("--rank", "-1"));
  options.size = std::stoi(text("--size", "-1"));
  options.master_address = text("--master", "localhost");
  options.job_id = "test";
  options.timeout = std::chrono::seconds(std::stoi(text("--timeout", "60")));
  std::unique_ptr<FileStore> store;
  if (arguments.count("--store") != 0) store = std::make_unique<FileStore>(arguments.at("--store"));
  options.store = store.get();
  const std::string checks = text("--checks", "messages,sizes,pieces,collectives,few_groups");
  auto wants = [&](const char* name) { return checks.find(name) != std::string::npos; };

  if (wants("no_attach")) refuse_cross_memory_attach();
  if (wants("existing")) {
    int provided = 0;
    const AltorchMpiTable* table = load_mpi_library(options.library, options.shim_directory).table;
    expect(table->init_thread(ALTORCH_MPI_THREAD_SERIALIZED, &provided) == 0, "MPI_Init_thread");
  }
  const auto begin = Clock::now();
  std::shared_ptr<Mpi> mpi = start_mpi(options);
  const double start_time = milliseconds_since(begin);
  std::vector<int> world(static_cast<std::size_t>(mpi->size()));
  std::iota(world.begin(), world.end(), 0);
  auto group = mpi->create_group(world, 0);
  const double group_time = milliseconds_since(begin) - start_time;
  if (wants("messages")) check_messages(*mpi, *group);
  if (wants("sizes")) check_sizes(group->channel());
  if (wants("pieces")) check_pieces(*mpi, mpi->table().comm_world(), mpi->rank(), mpi->size());
  if (wants("collectives")) {
    check_collectives(*group);
    check_bool(*group);
  }
  if (wants("few_groups")) check_groups(*mpi, 20);
  if (wants("many_groups")) check_groups(*mpi, 3000);
  if (wants("time")) time_all_reduce(*group);
  if (wants("again")) {
    options.job_id = "again";
    expect(start_mpi(options) == mpi, "a second start gives another Mpi");
  }
  if (wants("fork")) {
    const pid_t child = fork();
    if (child == 0) {
      Request request;
      std::optional<Error> error;
      char byte = 0;
      group->channel().send(&byte, 1, 0, 0, request);
      const bool refused = group->channel().test({&request, 1}, error) == State::kFailed;
      group.reset();
      finalize_mpi();
      std::_Exit(refused && !mpi->usable() ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child uses MPI");
  }
  if (wants("lost_member")) {
    check_lost_member(*mpi, *group);
    group.reset();
    finalize_mpi();
    std::cout << "ok rank " << mpi->rank() << std::endl;
    return 0;
  }
  if (wants("hang")) {
    std::cout << "hanging" << std::endl;
    while (true) pause();
  }
  std::string nodes;
  for (int node : mpi->node_of_rank()) nodes += std::to_string(node);
  group.reset();
  const auto finalize_begin = Clock::now();
  finalize_mpi();
  finalize_mpi();
  // What somebody else has initialised is his to finalise.
  expect(mpi->usable() == (mpi->origin() == MpiOrigin::kExisting), "finalize_mpi");
  if (mpi->origin() == MpiOrigin::kExisting) mpi->table().finalize();
  std::cout << "ok rank " << mpi->rank() << " of " << mpi->size() << " [" << mpi->library().version
            << ", abi " << mpi->library().abi << ", " << name_of(mpi->thread_level()) << ", by "
            << name_of(mpi->origin()) << ", nodes " << nodes << "] start " << start_time << " ms, group "
            << group_time << " ms, finalize " << milliseconds_since(finalize_begin) << " ms" << std::endl;
  return 0;
}

}  // namespace altorch

int main(int count, char** words) {
  // Several ranks may share a pipe: a line leaves in one piece, or it is mixed with theirs.
  std::ios::sync_with_stdio(false);
  std::cerr.unsetf(std::ios::unitbuf);
  std::map<std::string, std::string> arguments;
  for (int i = 1; i + 1 < count; i += 2) arguments[words[i]] = words[i + 1];
  try {
    return altorch::main_of_rank(arguments);
  } catch (const std::exception& error) {
    std::cerr << "FAILED: " << error.what() << std::endl;
    return 1;
  }
}
