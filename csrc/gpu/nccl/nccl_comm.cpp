// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/nccl/nccl_comm.h"

#include "base/env.h"
#include "base/log.h"
#include "base/number.h"
#include "device/cuda_runtime.h"
#include "gpu/run_with_timeout.h"

namespace altorch::nccl {
namespace {

constexpr char kThread[] = "al-nccl";
constexpr char kAborted[] = "its NCCL communicator was aborted; destroy the group and make a new one";
// Most calls last microseconds; one that lasts so long may wait for a peer, and end with the
// communicator only.
constexpr std::chrono::milliseconds kUsualCall{200};
constexpr std::chrono::seconds kLongAbort{1}, kFarewell{1};  // one thread looks after all groups

// Keys are text in some stores.
std::string to_hex(const UniqueId& id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : id.internal) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

Config config_of(const Knobs& knobs) {
  Config config;
  config.blocking = 1;
  config.min_ctas = knobs.min_ctas;
  config.max_ctas = knobs.max_ctas;
  config.cga_cluster_size = knobs.cga_cluster_size;
  config.split_share = knobs.split_share;
  return config;
}

std::function<Result()> on_device(int device, std::function<Result()> body) {
  return [device, body = std::move(body)] {
    library().table.set_device(device);
    return body();
  };
}

// A communicator that does not block from its start on would hand every later call to a thread, at
// 100 us a call. So what waits for all ranks by its nature is given to one alone. `made`: a
// communicator, or what else the call makes.
Result make_within(std::chrono::milliseconds timeout, int device, void*& made,
                   std::function<Result(void**)> make, const NcclComm::CheckPeers& check_peers = {}) {
  auto outcome = std::make_shared<void*>(nullptr);
  const auto body = [outcome, make = std::move(make)] { return make(outcome.get()); };
  const auto result = run_with_timeout(timeout, kThread, on_device(device, body), check_peers);
  if (!result) {
    throw Error(ErrorKind::kTimeout,
                "NCCL was not done after " + std::to_string(timeout.count()) +
                    " ms: some rank of the group cannot be reached; NCCL_DEBUG=INFO shows more");
  }
  made = *outcome;
  return *result;
}

// Rings and channels take seconds, whatever a group's operations may take.
std::chrono::milliseconds time_to_make(std::chrono::milliseconds timeout) {
  return std::max(timeout, seconds_setting("ALTORCH_BOOTSTRAP_SECONDS"));
}

}  // namespace

UniqueId unique_id_from(const std::string& hex) {
  UniqueId id{};
  for (std::size_t i = 0; i < sizeof id.internal; ++i) {
    const auto byte =
        to_number<unsigned char>(std::string_view(hex).substr(std::min(2 * i, hex.size()), 2), 16);
    if (!byte || hex.size() != 2 * sizeof id.internal)
      throw Error(ErrorKind::kInternal,
                  "rank 0 wrote " + excerpt(hex) + " as the id of an NCCL communicator");
    id.internal[i] = static_cast<char>(*byte);
  }
  return id;
}

NcclComm::NcclComm(KeyValueStore& store, const std::string& key, int device, int rank, int size,
                   std::chrono::milliseconds timeout, const Knobs& knobs, const CheckPeers& check_peers)
    : table_(library().table), device_(device), rank_(rank), size_(size), timeout_(timeout) {
  UniqueId id{};
  if (rank == 0) {
    check("ncclGetUniqueId", table_.get_unique_id(&id));
    store.set(key + "/id", to_hex(id));
  }
  if (rank != 0) id = unique_id_from(store.get(key + "/id", timeout));
  const auto begin = [id, rank, size, knobs](void** comm) {
    Config config = config_of(knobs);
    return library().table.init_rank(comm, size, id, rank, &config);
  };
  Comm made = nullptr;
  check("ncclCommInitRankConfig", make_within(time_to_make(timeout), device, made, begin, check_peers));
  comm_ = made;
}

NcclComm::NcclComm(Comm comm, int device, int rank, int size, std::chrono::milliseconds timeout)
    : table_(library().table), device_(device), rank_(rank), size_(size), timeout_(timeout), comm_(comm) {}

std::unique_ptr<NcclComm> NcclComm::split(int color, int key, int device, int size,
                                          std::chrono::milliseconds timeout, const Knobs& knobs) {
  const std::lock_guard lock(mutex_);
  if (!comm_) throw Error(ErrorKind::kClosed, kAborted);
  const auto begin = [parent = comm_.load(), color, key, knobs](void** comm) {
    Config config = config_of(knobs);
    return library().table.split(parent, color, key, comm, &config);
  };
  Comm made = nullptr;
  check("ncclCommSplit", make_within(time_to_make(timeout), device, made, begin));
  const bool shares = knobs.split_share == 1;
  if (shares) shares_ = true;
  if (!made) return nullptr;
  auto part = std::unique_ptr<NcclComm>(new NcclComm(made, device, key, size, timeout));
  part->shares_ = shares;
  return part;
}

void NcclComm::add_buffer(void* buffer, std::size_t bytes, bool symmetric) {
  const std::lock_guard lock(mutex_);
  if (!comm_) throw Error(ErrorKind::kClosed, kAborted);
  if (suspended_)
    throw Error(ErrorKind::kUnsupported, "its NCCL communicator is suspended; resume() it first");
  if (symmetric ? !table_.add_window : !table_.add_buffer) {
    throw Error(ErrorKind::kUnsupported,
                "NCCL " + library().version_text() + " cannot register " +
                    (symmetric ? "symmetric memory (2.27 can)" : "buffers (2.19 can)"));
  }
  void* handle = nullptr;
  if (symmetric) {
    const auto add = [comm = comm_.load(), buffer, bytes](void** window) {
      return library().table.add_window(comm, buffer, bytes, window, kSymmetricWindow);
    };
    check("ncclCommWindowRegister", make_within(timeout_, device_, handle, add));
  } else {
    check("ncclCommRegister", table_.add_buffer(comm_, buffer, bytes, &handle));
  }
  buffers_[buffer] = {handle, symmetric};
}

void NcclComm::remove_buffer(void* buffer) {
  const std::lock_guard lock(mutex_);
  const auto found = buffers_.find(buffer);
  if (found == buffers_.end()) return;
  const Registered entry = found->second;
  buffers_.erase(found);
  if (!comm_) return;  // went with it
  check("ncclCommDeregister", entry.symmetric ? table_.remove_window(comm_, entry.handle)
                                              : table_.remove_buffer(comm_, entry.handle));
}

bool NcclComm::has_buffers() {
  const std::lock_guard lock(mutex_);
  return !buffers_.empty();
}

// NCCL refuses those that share, and those whose memory it does not manage.
std::optional<std::string> NcclComm::suspend_unsupported_reason() {
  const std::string cannot = " cannot give a communicator's memory back";
  if (!table_.suspend || !table_.resume) return "NCCL " + library().version_text() + cannot + " (2.29.7 can)";
  if (shares_) return "NCCL" + cannot + " that shares it (split_share)";
  if (!suspended_ && !memory()) return "NCCL" + cannot + ", for it does not manage that (NCCL_DEBUG=INFO)";
  return std::nullopt;
}

// While it is suspended NCCL still counts what it will take again.
std::optional<NcclComm::Memory> NcclComm::memory() {
  const std::lock_guard lock(mutex_);
  Memory found;
  if (!comm_ || !table_.memory_stat ||
      table_.memory_stat(comm_, kMemorySuspendable, &found.suspendable) != kSuccess ||
      table_.memory_stat(comm_, kMemoryPersistent, &found.persistent) != kSuccess)
    return std::nullopt;
  if (suspended_) found.suspendable = 0;
  return found;
}

void NcclComm::together(const char* what, std::function<Result()> call, const CheckPeers& check_peers) {
  try {
    const std::lock_guard lock(mutex_);
    if (!comm_) throw Error(ErrorKind::kClosed, kAborted);
    void* nothing = nullptr;
    check(what,
          make_within(
              timeout_, device_, nothing, [call = std::move(call)](void**) { return call(); }, check_peers));
  } catch (const Error&) {
    abort();  // a rank may still be in the call, and the ranks differ in what they have
    throw;
  }
}

void NcclComm::suspend(const CheckPeers& check_peers) {
  together(
      "ncclCommSuspend", [comm = comm_.load()] { return library().table.suspend(comm, kSuspendMemory); },
      check_peers);
  suspended_ = true;
}

void NcclComm::resume(const CheckPeers& check_peers) {
  if (!suspended_) return;
  together(
      "ncclCommResume", [comm = comm_.load()] { return library().table.resume(comm); }, check_peers);
  suspended_ = false;
}

Comm NcclComm::handle() { return comm_; }

NcclComm::~NcclComm() { finish({}); }

bool NcclComm::leave() {
  std::vector<void*> windows;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [buffer, entry] : buffers_) {
      if (entry.symmetric) windows.push_back(entry.handle);
    }
    buffers_.clear();
  }
  return finish(std::move(windows));
}

// In two steps, as NCCL wants it: what is left to do for peers, then the memory. Not on this
// thread, for both may wait for peers that are gone.
bool NcclComm::finish(std::vector<void*> windows) {
  const Comm comm = comm_.exchange(nullptr);
  if (!comm) return true;
  const auto body = [comm, windows, suspended = suspended_.load()] {
    const CudaRuntime::RelaxedCapture relaxed;
    const Table& table = library().table;
    Result last = suspended ? table.resume(comm) : kSuccess;
    for (void* window : windows) {
      if (last == kSuccess) last = table.remove_window(comm, window);
    }
    if (last == kSuccess) last = table.finalize(comm);
    return last == kSuccess || last == kInProgress ? table.destroy(comm) : table.abort(comm);
  };
  try {
    return run_with_timeout(kFarewell, kThread, on_device(device_, body)).has_value();
  } catch (
      const Error& error) {  // a destructor waits for no peer without a deadline: NCCL keeps the communicator
    log(LogLevel::kWarning, std::string("an NCCL communicator is not freed: ") + error.what());
    return false;
  }
}

void NcclComm::check(const char* what, Result result) {
  if (result == kSuccess) return;
  std::string text = std::string(what) + " failed: " + table_.error_string(result);
  const Comm comm = comm_;
  const char* more = comm ? table_.last_error(comm) : nullptr;
  if (more && *more) text += std::string(" (") + more + ")";
  throw Error(ErrorKind::kTransport, text + "; NCCL_DEBUG=INFO shows more");
}

void NcclComm::enqueue(std::span<const Call> operations, void* stream) {
  const std::lock_guard lock(mutex_);
  if (!comm_) throw Error(ErrorKind::kClosed, kAborted);
  const Call& first = operations.front();
  if (operations.size() == 1 && (is_one_call(first) || has_all_to_all(first))) return call(first, stream);
  table_.group_start();
  try {
    for (const Call& operation : operations) call(operation, stream);
  } catch (...) {
    table_.group_end();
    throw;
  }
  check("ncclGroupEnd", table_.group_end());
}

std::optional<std::string> NcclComm::async_error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !comm_) return std::nullopt;
  Result state = kSuccess;
  if (table_.async_error(comm_, &state) != kSuccess || state == kSuccess || state == kInProgress)
    return std::nullopt;
  const char* more = table_.last_error(comm_);
  return std::string("NCCL: ") + table_.error_string(state) +
         (more && *more ? std::string(" (") + more + ")" : "");
}

void NcclComm::abort() {
  const std::unique_lock lock(mutex_, kUsualCall);
  const Comm comm = comm_.exchange(nullptr);
  if (!comm) return;
  // NCCL waits for the device, which may be held up by what it knows nothing of.
  const auto body = [comm] {
    const CudaRuntime::RelaxedCapture relaxed;  // another thread may capture a graph
    return library().table.abort(comm);
  };
  try {
    run_with_timeout(kLongAbort, kThread, on_device(device_, body));
  } catch (const Error&) {  // no thread can be started, and peers of this rank's kernels wait in vain
    body();
  }
}

}  // namespace altorch::nccl
