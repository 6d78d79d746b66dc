// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/nvshmem/world.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/number.h"
#include "gpu/run_with_timeout.h"

namespace altorch::nvshmem {
namespace {

constexpr char kGranularity[] = "NVSHMEM_CUMEM_GRANULARITY";
constexpr std::size_t kFineGranularity = 2 << 20;
constexpr std::size_t kSignals = 128 << 10;  // of all windows
constexpr char kNoSignals[] =
    "this process has used up its signals for windows over NVSHMEM; open fewer, and keep them open";

std::atomic<NvshmemWorld& (*)()> replacement{nullptr};

// NVSHMEM registers memory in multiples of this. Its own default is far larger than what torch's
// memory pools allocate at once. NVSHMEM reads the variable in its first call. 0: the user's own
// value is no number of bytes.
std::size_t granularity_here() {
  setenv(kGranularity, std::to_string(kFineGranularity).c_str(), /*overwrite=*/0);
  return to_number<std::size_t>(std::getenv(kGranularity)).value_or(0);
}

}  // namespace

NvshmemWorld::NvshmemWorld(std::function<Table()> load, std::size_t granularity)
    : load_(std::move(load)), granularity_(granularity) {}

NvshmemWorld& NvshmemWorld::instance() {
  if (const auto find = replacement.load(std::memory_order_acquire)) return find();
  static auto* const world = new NvshmemWorld(load_library, granularity_here());  // never destroyed
  return *world;
}

void NvshmemWorld::replace(NvshmemWorld& (*find)()) { replacement.store(find, std::memory_order_release); }

std::string NvshmemWorld::unsupported_reason() {
  const std::lock_guard lock(mutex_);
  return find_unsupported_reason();
}

std::string NvshmemWorld::find_unsupported_reason() {
  if (!unusable_reason_.empty()) return unusable_reason_;
  if (granularity_ == 0) return std::string(kGranularity) + " is no number of bytes";
  try {
    if (!is_loaded_) table_ = load_();
    is_loaded_ = true;
  } catch (const Error& error) {
    return error.what();
  }
  if (id_.empty() && table_.init_status() >= kInitialized)
    return "NVSHMEM was initialized by other code of this process, such as torch's symmetric memory";
  return "";
}

std::string NvshmemWorld::unsupported_reason(int rank, int size, std::size_t signals) {
  const std::lock_guard lock(mutex_);
  const std::string found = find_unsupported_reason();
  if (!found.empty() || id_.empty()) return found;
  if (rank != rank_ || size != size_) return kOtherGroup;
  return has_signals(signals) ? "" : kNoSignals;
}

std::string NvshmemWorld::id() {
  const std::lock_guard lock(mutex_);
  return id_;
}

void NvshmemWorld::check_usable() const {
  if (!unusable_reason_.empty()) throw Error(ErrorKind::kClosed, unusable_reason_);
}

void NvshmemWorld::mark_unusable(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (unusable_reason_.empty()) unusable_reason_ = why;
}

std::string NvshmemWorld::make_id() {
  const std::lock_guard lock(mutex_);
  check_usable();
  if (!id_.empty()) return id_;
  UniqueId id;
  if (const int result = table_.get_unique_id(&id); result != kSuccess)
    throw Error(ErrorKind::kUnsupported, "nvshmemx_get_uniqueid failed with error " + std::to_string(result));
  return {reinterpret_cast<const char*>(&id), sizeof id};
}

// A rank that is late, or has failed alone, leaves the others in the call.
void NvshmemWorld::collective(const std::string& what, std::chrono::milliseconds timeout,
                              std::function<int(const Table&)> body, const CheckPeers& check_peers) {
  check_usable();
  const std::string unusable = ", and cannot be used in this process any more";
  unusable_reason_ = "NVSHMEM did not end " + what + unusable;  // unless it comes back
  const auto result = run_with_timeout(
      timeout, "al-nvshmem",
      [table = table_, device = device_, body = std::move(body)] {
        table.set_device(device);
        return body(table);
      },
      check_peers);
  unusable_reason_.clear();
  if (!result)
    unusable_reason_ =
        "NVSHMEM has not ended " + what + " after " + std::to_string(timeout.count()) + " ms" + unusable;
  if (result && *result != kSuccess)
    unusable_reason_ = "NVSHMEM failed in " + what + " with error " + std::to_string(*result) + unusable;
  if (!unusable_reason_.empty()) throw Error(ErrorKind::kUnsupported, unusable_reason_);
}

void NvshmemWorld::join(const std::string& id, int device, int rank, int size,
                        std::chrono::milliseconds timeout, const CheckPeers& check_peers) {
  const std::lock_guard lock(mutex_);
  if (id_ == id) return;
  UniqueId unique;
  if (!id_.empty() || id.size() != sizeof unique)
    throw Error(ErrorKind::kInternal, "another rank wrote " + excerpt(id) + " as the id of NVSHMEM's world");
  std::memcpy(&unique, id.data(), sizeof unique);
  device_ = device;
  const auto signals = std::make_shared<void*>(nullptr);
  const auto init = [unique, rank, size, signals](const Table& nvshmem) {
    UniqueId own = unique;
    InitAttributes attributes;
    if (const int result = nvshmem.set_unique_id(rank, size, &own, &attributes); result != kSuccess)
      return result;
    if (const int result = nvshmem.init(kInitWithUniqueId, &attributes); result != kSuccess) return result;
    const int status = nvshmem.init_status();
    if (status != kInitialized && status != kSharedGpus) return status;
    *signals = nvshmem.allocate(kSignals, sizeof(std::uint64_t));
    return *signals ? kSuccess : kOutOfMemory;
  };
  collective("nvshmemx_hostlib_init_attr", timeout, init, check_peers);
  id_ = id, rank_ = rank, size_ = size;
  signals_ = static_cast<std::uint64_t*>(*signals);
}

std::uint64_t NvshmemWorld::registration_number(const std::byte* base) {
  const std::lock_guard lock(mutex_);
  const auto found = buffers_.find(base);
  return found == buffers_.end() ? 0 : found->second.number;
}

std::byte* NvshmemWorld::add_buffer(std::byte* base, std::size_t bytes, std::chrono::milliseconds timeout,
                                    const CheckPeers& check_peers) {
  const std::lock_guard lock(mutex_);
  if (const auto found = buffers_.find(base); found != buffers_.end()) return found->second.symmetric;
  const auto symmetric = std::make_shared<void*>(nullptr);
  const auto add = [base, bytes, symmetric](const Table& nvshmem) {
    *symmetric = nvshmem.add_buffer(base, bytes, 0);
    return *symmetric ? kSuccess : kOutOfMemory;
  };
  collective("nvshmemx_buffer_register_symmetric", timeout, add, check_peers);
  buffers_[base] = {static_cast<std::byte*>(*symmetric), ++buffers_made_};
  return buffers_[base].symmetric;
}

bool NvshmemWorld::has_signals(std::size_t number) const { return number <= kSignals - signals_reserved_; }

std::size_t NvshmemWorld::reserve_signals(std::size_t number) {
  const std::lock_guard lock(mutex_);
  if (!has_signals(number)) throw Error(ErrorKind::kUnsupported, kNoSignals);
  return std::exchange(signals_reserved_, signals_reserved_ + number);
}

std::uint64_t* NvshmemWorld::signals(std::size_t begin) {
  const std::lock_guard lock(mutex_);
  return signals_ + begin;
}

}  // namespace altorch::nvshmem
