// SPDX-License-Identifier: BSD-3-Clause
#include "support/fake_nvshmem.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>

#include "base/leak_intentionally.h"
#include "support/fake_device.h"

namespace altorch::fake_nvshmem {

using nvshmem::InitAttributes;
using nvshmem::NvshmemWorld;
using nvshmem::Table;
using nvshmem::UniqueId;
using Lock = std::unique_lock<std::mutex>;

constexpr int kFailed = 7;
constexpr std::chrono::seconds kLongest{60};  // a test that waits so long has failed

thread_local NvshmemWorld* world_here = nullptr;

struct Block {
  std::byte* own = nullptr;    // where it lies
  std::byte* named = nullptr;  // its symmetric address
  std::size_t bytes = 0;
};

struct Put {
  std::byte* to;
  std::vector<std::byte> data;
};

struct Process {
  int status = 0, rank = -1;
  bool failed = false;
  std::uint64_t collectives = 0, made = 0;
  std::map<std::uint64_t, Block> blocks;  // by number, the same in all processes
  std::vector<Put> puts;                  // that have not arrived
};

struct Fault {
  std::string name;
  int process;
  bool hangs;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> ending{false};
  bool maps = true;
  std::vector<Process> processes;
  int ranks = 0;  // of the world
  std::map<int, int> process_of;
  struct Collective {
    std::string call;
    int arrived = 0;
  };
  std::map<std::uint64_t, Collective> collectives;
  std::map<std::string, int> calls;
  std::vector<Fault> faults;
  std::vector<std::string> misuse;

  Process& process(int number) { return processes[static_cast<std::size_t>(number)]; }

  // Every call begins with it. False: it is to fail.
  bool begin(Lock& lock, int number, const std::string& name, bool needs_init = true) {
    Process& own = process(number);
    ++calls[name];
    if (own.failed) misuse.push_back(name + " after a failure");
    if (needs_init && own.status != nvshmem::kInitialized) misuse.push_back(name + " before init");
    const auto fault = std::ranges::find_if(
        faults, [&](const Fault& each) { return each.name == name && each.process == number; });
    if (fault == faults.end()) return true;
    own.failed = true;
    const bool hangs = fault->hangs;
    faults.erase(fault);
    if (hangs) changed.wait(lock, [&] { return ending.load(); });
    return false;
  }
  // Waits until all ranks have come to the same call. False: in vain.
  bool meet(Lock& lock, int number, const std::string& call) {
    Collective& all = collectives[++process(number).collectives];
    if (all.arrived++ == 0) all.call = call;
    if (all.call != call) misuse.push_back(call + " meets " + all.call);
    changed.notify_all();
    changed.wait(lock, [&] { return ending || all.arrived == ranks; });
    return !ending;
  }
  const std::pair<const std::uint64_t, Block>* find(int number, const void* named, std::size_t bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(named);
    for (const auto& entry : process(number).blocks) {
      const auto begin = reinterpret_cast<std::uintptr_t>(entry.second.named);
      if (at >= begin && at + bytes <= begin + entry.second.bytes) return &entry;
    }
    return nullptr;
  }
  // Where the memory of a rank lies that has this symmetric address.
  std::byte* there(int number, const void* named, std::size_t bytes, int rank) {
    const auto* const own = find(number, named, bytes);
    if (!own || rank < 0 || rank >= ranks) {
      misuse.push_back("an address that is not symmetric");
      return nullptr;
    }
    return process(process_of[rank]).blocks.at(own->first).own +
           (static_cast<const std::byte*>(named) - own->second.named);
  }
  // The same of the caller's own memory, which need not be symmetric if ranks map each other's.
  std::byte* here(int number, const void* named, std::size_t bytes) {
    if (find(number, named, bytes)) return there(number, named, bytes, process(number).rank);
    if (!maps) misuse.push_back("own memory that is not registered");
    return static_cast<std::byte*>(const_cast<void*>(named));
  }
};

namespace {

std::atomic_ref<std::uint64_t> word(std::byte* at) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at));
}

void wait_for(State& state, std::byte* at, std::uint64_t value) {
  const auto until = std::chrono::steady_clock::now() + kLongest;
  while (word(at).load() < value && !state.ending) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (std::chrono::steady_clock::now() < until) continue;
    const Lock lock(state.mutex);
    state.misuse.push_back("a stream waited in vain");
    state.ending = true;
    state.changed.notify_all();
  }
}

void arrive(State& state, int number) {
  std::vector<Put> puts;
  {
    const Lock lock(state.mutex);
    puts.swap(state.process(number).puts);
  }
  for (const Put& put : puts) std::memcpy(put.to, put.data.data(), put.data.size());
}

void add_setup(Table& table, const std::shared_ptr<State>& state, int number) {
  table.set_device = [](int) { return 0; };
  table.init_status = [=] {
    const Lock lock(state->mutex);
    return state->process(number).status;
  };
  table.get_unique_id = [=](UniqueId* id) {
    Lock lock(state->mutex);
    if (!state->begin(lock, number, "nvshmemx_get_uniqueid", false)) return kFailed;
    std::memcpy(id->internal, &number, sizeof number);
    return 0;
  };
  table.set_unique_id = [](int rank, int ranks, const UniqueId* id, InitAttributes* attributes) {
    attributes->arguments.unique_id.id = const_cast<UniqueId*>(id);
    attributes->arguments.unique_id.rank = rank;
    attributes->arguments.unique_id.ranks = ranks;
    return 0;
  };
  table.init = [=](unsigned flags, InitAttributes* attributes) {
    Lock lock(state->mutex);
    if (!state->begin(lock, number, "nvshmemx_hostlib_init_attr", false)) return kFailed;
    Process& own = state->process(number);
    const nvshmem::UniqueIdArguments& wanted = attributes->arguments.unique_id;
    if (own.status != 0 || flags != nvshmem::kInitWithUniqueId) state->misuse.push_back("a second init");
    own.rank = wanted.rank;
    state->ranks = wanted.ranks;
    state->process_of[wanted.rank] = number;
    const std::string id(wanted.id->internal, sizeof wanted.id->internal);
    if (!state->meet(lock, number, "init by " + id + " of " + std::to_string(wanted.ranks))) return kFailed;
    own.status = nvshmem::kInitialized;
    return 0;
  };
}

void add_memory(Table& table, const std::shared_ptr<State>& state, int number) {
  table.allocate = [=](std::size_t count, std::size_t bytes) -> void* {
    Lock lock(state->mutex);
    if (!state->begin(lock, number, "nvshmem_calloc")) return nullptr;
    Process& own = state->process(number);
    auto* const memory = new std::byte[count * bytes]();
    record_leak(memory);  // a window that was not closed by all ranks may write there later
    own.blocks[++own.made] = {memory, memory, count * bytes};
    return state->meet(lock, number, "calloc " + std::to_string(count * bytes)) ? memory : nullptr;
  };
  table.add_buffer = [=](void* memory, std::size_t bytes, int) -> void* {
    Lock lock(state->mutex);
    if (!state->begin(lock, number, "nvshmemx_buffer_register_symmetric")) return nullptr;
    Process& own = state->process(number);
    for (const auto& [made, block] : own.blocks) {
      if (block.own == memory) state->misuse.push_back("memory is registered twice");
    }
    void* const named = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    own.blocks[++own.made] = {static_cast<std::byte*>(memory), static_cast<std::byte*>(named), bytes};
    return state->meet(lock, number, "register " + std::to_string(bytes)) ? named : nullptr;
  };
  table.mapped = [=](const void* named, int rank) -> void* {
    Lock lock(state->mutex);
    state->begin(lock, number, "nvshmem_ptr");
    if (!state->maps && rank != state->process(number).rank) return nullptr;
    return state->there(number, named, 1, rank);
  };
}

void add_streams(Table& table, const std::shared_ptr<State>& state, int number) {
  table.put = [=](void* to, const void* from, std::size_t bytes, int rank, void* stream) {
    Lock lock(state->mutex);
    state->begin(lock, number, "nvshmemx_putmem_on_stream");
    const auto put = [=, target = state->there(number, to, bytes, rank),
                      source = state->here(number, from, bytes)] {
      std::vector<std::byte> data(source, source + bytes);
      const Lock held(state->mutex);
      state->process(number).puts.push_back({target, std::move(data)});
    };
    FakeDevice::launch(put, stream);
  };
  table.get = [=](void* to, const void* from, std::size_t bytes, int rank, void* stream) {
    Lock lock(state->mutex);
    state->begin(lock, number, "nvshmemx_getmem_on_stream");
    const auto get = [=, target = state->here(number, to, bytes),
                      source = state->there(number, from, bytes, rank)] {
      std::memcpy(target, source, bytes);
    };
    FakeDevice::launch(get, stream);
  };
  table.put_signal = [=](void* to, const void* from, std::size_t bytes, std::uint64_t* signal,
                         std::uint64_t value, int op, int rank, void* stream) {
    Lock lock(state->mutex);
    state->begin(lock, number, "nvshmemx_putmem_signal_on_stream");
    if (op != nvshmem::kSignalAdd) state->misuse.push_back("a signal that is not added");
    const auto put = [=, target = state->there(number, to, bytes, rank),
                      source = state->here(number, from, bytes),
                      raised = state->there(number, signal, sizeof *signal, rank)] {
      std::memcpy(target, source, bytes);
      word(raised).fetch_add(value);
    };
    FakeDevice::launch(put, stream);
  };
  table.signal = [=](std::uint64_t* signal, std::uint64_t value, int op, int rank, void* stream) {
    Lock lock(state->mutex);
    state->begin(lock, number, "nvshmemx_signal_op_on_stream");
    if (op != nvshmem::kSignalAdd) state->misuse.push_back("a signal that is not added");
    std::byte* const raised = state->there(number, signal, sizeof *signal, rank);
    FakeDevice::launch([=] { word(raised).fetch_add(value); }, stream);
  };
  table.wait_signal = [=](std::uint64_t* signal, int comparison, std::uint64_t value, void* stream) {
    Lock lock(state->mutex);
    state->begin(lock, number, "nvshmemx_signal_wait_until_on_stream");
    if (comparison != nvshmem::kGreaterOrEqual) state->misuse.push_back("another comparison");
    std::byte* const raised = state->here(number, signal, sizeof *signal);
    FakeDevice::launch([=] { wait_for(*state, raised, value); }, stream);
  };
  table.quiet = [=](void* stream) {
    Lock lock(state->mutex);
    state->begin(lock, number, "nvshmemx_quiet_on_stream");
    FakeDevice::launch([=] { arrive(*state, number); }, stream);
  };
}

}  // namespace
}  // namespace altorch::fake_nvshmem

namespace altorch {

using fake_nvshmem::Lock;

FakeNvshmem::FakeNvshmem(int ranks, std::size_t granularity, bool maps)
    : state_(std::make_shared<fake_nvshmem::State>()) {
  state_->maps = maps;
  state_->processes.resize(static_cast<std::size_t>(ranks));
  for (int process = 0; process < ranks; ++process) {
    const auto load = [state = state_, process] {
      nvshmem::Table table;
      fake_nvshmem::add_setup(table, state, process);
      fake_nvshmem::add_memory(table, state, process);
      fake_nvshmem::add_streams(table, state, process);
      return table;
    };
    worlds_.push_back(std::make_unique<nvshmem::NvshmemWorld>(load, granularity));
  }
  nvshmem::NvshmemWorld::replace([]() -> nvshmem::NvshmemWorld& { return *fake_nvshmem::world_here; });
}

FakeNvshmem::~FakeNvshmem() {
  nvshmem::NvshmemWorld::replace(nullptr);
  const Lock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
}

void FakeNvshmem::enter(int process) {
  fake_nvshmem::world_here = worlds_[static_cast<std::size_t>(process)].get();
}

void FakeNvshmem::fail(const std::string& name, int process) {
  const Lock lock(state_->mutex);
  state_->faults.push_back({name, process, false});
}

void FakeNvshmem::hang(const std::string& name, int process) {
  const Lock lock(state_->mutex);
  state_->faults.push_back({name, process, true});
}

void FakeNvshmem::initialize_elsewhere(int process) {
  const Lock lock(state_->mutex);
  state_->process(process).status = nvshmem::kInitialized;
}

int FakeNvshmem::calls(const std::string& name) const {
  const Lock lock(state_->mutex);
  const auto found = state_->calls.find(name);
  return found == state_->calls.end() ? 0 : found->second;
}

std::uint64_t FakeNvshmem::signals(int process) const {
  const Lock lock(state_->mutex);
  const fake_nvshmem::Block& words = state_->process(process).blocks.at(1);
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < words.bytes; at += sizeof sum)
    sum += fake_nvshmem::word(words.own + at).load() % (std::uint64_t{1} << 62);
  return sum;
}

std::vector<std::string> FakeNvshmem::misuse() const {
  const Lock lock(state_->mutex);
  return state_->misuse;
}

}  // namespace altorch
