// SPDX-License-Identifier: BSD-3-Clause
// One rank of a multi-process check of bootstrap/ and transports/mpi/: starts MPI as altorch does
// and puts it to work. tests/python/test_mpi_bootstrap.py starts as many as it wants, with or
// without a launcher.
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

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/adaptive_wait.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/file_store.h"
#include "transports/channel_conformance.h"
#include "transports/collectives_conformance.h"
#include "transports/mpi/channel.h"
#include "transports/mpi/request_extra.h"
#include "windows/window_conformance.h"

namespace altorch {
namespace {

using namespace conformance;  // NOLINT

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Messages with one tag, all of whose receives are posted before the first message comes, and are
// tested from the last one on: the pieces of one message enter no receive of another.
void check_several_long(Channel& channel, Mpi& mpi) {
  const std::vector<std::size_t> sizes = {2000, 1000, 3000, 3000, 10, 1000, 4500};
  std::vector<std::vector<char>> messages;
  std::vector<Request> requests(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i)
    messages.emplace_back(sizes[i], channel.rank() == 0 ? static_cast<char>(i + 1) : '\0');
  if (channel.rank() == 1) {
    for (std::size_t i = 0; i < sizes.size(); ++i)
      channel.receive(messages[i].data(), sizes[i], 0, 5, requests[i]);
  }
  expect(mpi.barrier(std::chrono::seconds(20)), "barrier");
  if (channel.rank() == 0 && channel.size() > 1) {
    for (std::size_t i = 0; i < sizes.size(); ++i)
      channel.send(messages[i].data(), sizes[i], 1, 5, requests[i]);
  }
  for (std::size_t i = sizes.size(); i-- > 0;) expect_done(channel, {&requests[i], 1}, "one of several");
  for (std::size_t i = 0; i < sizes.size() && channel.rank() == 1; ++i)
    expect(messages[i] == std::vector<char>(sizes[i], static_cast<char>(i + 1)),
           "a message has parts of another");
}

// MPICH ends a process that finalises MPI with messages that it has not received.
void take_pieces(Mpi& mpi, std::intptr_t communicator, std::int64_t tag, std::size_t bytes) {
  std::vector<char> rest(1000);
  for (std::size_t taken = 0; taken < bytes; taken += rest.size()) {
    std::intptr_t request = 0;
    AltorchMpiTest result = {};
    mpi.table().irecv(rest.data(), 1000, 0, static_cast<int>(tag), communicator, &request);
    while (request != 0) mpi.table().test(&request, &result);
  }
}

// Cut into pieces of 1000 bytes instead of 1 GiB.
void check_pieces(Mpi& mpi, std::intptr_t communicator, int rank, int size) {
  MpiChannel channel(mpi, communicator, rank, size, {}, 1000);
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
  check_several_long(channel, mpi);
  // Long to short, short to long, long to longer.
  struct Case {
    std::size_t sent, expected;
  };
  // As long as the header, which would be taken for the message; 8 and 24 were its lengths once.
  constexpr std::size_t kHeader = sizeof(LongHeader);
  std::int64_t long_messages = 3 + 4;  // that rank 0 has sent so far
  for (Case test : {Case{5000, 500}, Case{500, 5000}, Case{5000, 7000}, Case{5000, kHeader}, Case{5000, 24},
                    Case{5000, 8}, Case{kHeader, 5000}}) {
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
      if (test.sent > 1000) take_pieces(mpi, communicator, channel.max_tag() + 1 + long_messages, test.sent);
    }
    expect(mpi.barrier(std::chrono::seconds(20)), "barrier");
    if (test.sent > 1000) ++long_messages;
  }
}

Member as_member(MpiGroup& group) {
  return {*group.collectives().front(), group.channel().rank(), group.channel().size()};
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
    run(as_member(*group), call);
    expect(one == static_cast<int>(members.size()), "all_reduce in a subgroup");
    expect(members[static_cast<std::size_t>(group->channel().rank())] == mpi.rank(), "rank in a subgroup");
  }
  if (mpi.rank() == 0)
    std::cout << "  " << rounds << " groups, " << milliseconds_since(begin) / rounds << " ms each"
              << std::endl;
}

// Rank 0 waits inside MPI for rank 1, which never comes: both go on, and MPI is aborted where it is
// stuck.
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
  expect(error->kind() == ErrorKind::kTransport, "a call under way would not close its group");
  bool refused = false;
  try {
    mpi.exchange("x");
  } catch (const Error&) {
    refused = true;
  }
  expect(refused && !mpi.usable(), "MPI is usable though a thread is stuck in it");
}

std::shared_ptr<std::byte> plain(std::size_t bytes) {
  return {static_cast<std::byte*>(::operator new(bytes)),
          [](std::byte* memory) { ::operator delete(memory); }};
}

// A put that has taken effect, from rank 0 to rank 1, which waits for a signal meanwhile; the best
// of 5 batches.
void time_windows(Communicator& communicator) {
  const std::size_t largest = 16 << 20;
  const Opened<char> opened(communicator, plain, DType::kUInt8, largest);
  const std::vector<char> from(largest, 1);
  opened.barrier();
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 10, std::size_t{64} << 10, largest}) {
    if (opened.rank() == 0) {
      const int calls = bytes == largest ? 20 : 2000;
      double best = 1e300;
      for (int batch = 0; batch < 5; ++batch) {
        const auto begin = Clock::now();
        for (int each = 0; each < calls; ++each) {
          WindowCall put = opened.call(Access::kPut, 1, 0, bytes);
          put.from = from.data();
          bool free = false;
          opened.window->access(put, kPatience, free);
        }
        best = std::min(best, milliseconds_since(begin) * 1000 / calls);
      }
      std::cout << "  " << opened.window->route() << ": put of " << bytes << " bytes: " << best << " us"
                << std::endl;
      opened.signal(1, 0);
    } else if (opened.rank() == 1) {
      opened.wait(0, 0);
    }
    opened.barrier();
  }
  opened.close();
}

// Windows over MPI's own one-sided communication.
void check_windows(Mpi& mpi, std::shared_ptr<KeyValueStore> store, std::span<const int> world,
                   bool leaves_open, bool times) {
  setenv("ALTORCH_SHM_BYTES", "0", 1);
  setenv("ALTORCH_ROUTE", "window=mpi", 1);
  const Membership membership{"windows", {world.begin(), world.end()}, std::move(store), nullptr};
  const auto communicator = std::make_shared<Communicator>(membership, mpi.create_group(world, 7));
  {
    const Opened<float> opened(*communicator, plain, DType::kFloat32, 8);
    expect(std::string(opened.window->route()) == "mpi", opened.window->route());
    if (leaves_open) {
      opened.put(opened.next(), 0, {1.0f, 2.0f}, 0);
      opened.wait(opened.before(), 0);
      opened.barrier();
      return communicator->close("the group was destroyed");
    }
    opened.close();
  }
  {
    setenv("ALTORCH_ROUTE", "window=messages", 1);
    const Opened<float> opened(*communicator, plain, DType::kFloat32, 8);
    setenv("ALTORCH_ROUTE", "window=mpi", 1);
    expect(std::string(opened.window->route()) == "messages", opened.window->route());
    opened.close();
  }
  window_conforms(*communicator, plain);
  for (const char* route : {"window=mpi", "window=messages"}) {
    setenv("ALTORCH_ROUTE", route, 1);
    if (times) time_windows(*communicator);
  }
  communicator->close("the group was destroyed");
}

void time_all_reduce(MpiGroup& group) {
  for (std::int64_t count : {2, 256, 16'384, 262'144}) {
    std::vector<float> data(static_cast<std::size_t>(count), 1.0f);
    Call call{OpKind::kAllReduce, DType::kFloat32};
    call.output = data.data();
    call.count = count;
    const int repeats = count > 100'000 ? 50 : 2000;
    for (int i = 0; i < repeats / 10; ++i) run(as_member(group), call);
    const auto begin = Clock::now();
    for (int i = 0; i < repeats; ++i) run(as_member(group), call);
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
  if (wants("messages")) messages_arrive(group->channel());
  if (wants("sizes")) sizes_are_compared(group->channel());
  if (wants("pieces")) check_pieces(*mpi, mpi->table().comm_world(), mpi->rank(), mpi->size());
  if (wants("collectives")) {
    const Member me = as_member(*group);
    const NativeCollectives& own = me.collectives;
    collectives_conform(me);
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax})
      expect(!own.offers(Call{OpKind::kAllReduce, DType::kBFloat16, op}),
             "a reduction of bfloat16 is offered");
    expect(!own.offers(Call{OpKind::kAllReduce, DType::kFloat32, ReduceOp::kMin}),
           "MIN of float32 is offered, which loses NaN");
  }
  if (wants("few_groups")) check_groups(*mpi, 20);
  const std::string folder = text("--window-store", text("--store", "").c_str());
  for (const bool leaves_open : {false, true}) {
    if (wants(leaves_open ? "open_window" : "windows"))
      check_windows(*mpi, std::make_shared<FileStore>(folder), world, leaves_open, wants("windows_timed"));
  }
  if (wants("many_groups")) check_groups(*mpi, 3000);
  if (wants("time_all_reduce")) time_all_reduce(*group);
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
      finalize_mpi(false, std::chrono::seconds(10));
      std::_Exit(refused && !mpi->usable() ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child uses MPI");
  }
  if (wants("lost_member")) {
    check_lost_member(*mpi, *group);
    group.reset();
    finalize_mpi(false, std::chrono::seconds(10));
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
  finalize_mpi(false, std::chrono::seconds(10));
  finalize_mpi(false, std::chrono::seconds(10));
  // The program that initialised MPI before altorch also finalises it.
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
    std::_Exit(1);  // no thread waits for the other ranks
  }
}
