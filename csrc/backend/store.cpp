#include "backend/store.h"

#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace altorch::backend {
namespace {

Error store_failure(const std::string& key, const std::exception& cause) {
  return Error(ErrorKind::kTransport, "the c10d store failed at key '" + key + "': " + cause.what());
}

c10::intrusive_ptr<c10d::Store> shared_clone(c10::intrusive_ptr<c10d::Store> store) {
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get()))
    store = prefixed->getUnderlyingNonPrefixStore();
  static std::mutex mutex;
  static c10::weak_intrusive_ptr<c10d::Store>* original = nullptr;
  static c10::weak_intrusive_ptr<c10d::Store>* clone = nullptr;
  const std::lock_guard lock(mutex);
  if (original) {
    if (auto found = clone->lock(); found && (found == store || original->lock() == store)) return found;
  }
  auto made = store->clone();
  delete original;
  delete clone;
  original = new c10::weak_intrusive_ptr<c10d::Store>(store);
  clone = new c10::weak_intrusive_ptr<c10d::Store>(made);
  return made;
}

}  // namespace

C10dStore::C10dStore(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix)
    : store_(c10::make_intrusive<c10d::PrefixStore>(prefix, shared_clone(store))) {}

void C10dStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  try {
    store_->set(key, value);
  } catch (const std::exception& cause) {
    throw store_failure(key, cause);
  }
}

std::optional<std::string> C10dStore::try_get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  try {
    if (!store_->check({key})) return std::nullopt;
    const auto value = store_->get(key);
    return std::string(value.begin(), value.end());
  } catch (const std::exception& cause) {
    throw store_failure(key, cause);
  }
}

std::optional<std::vector<std::string>> C10dStore::multi_get(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  try {
    if (!store_->check(keys)) return std::nullopt;
    std::vector<std::string> values;
    for (const auto& value : store_->multiGet(keys)) values.emplace_back(value.begin(), value.end());
    return values;
  } catch (const std::exception& cause) {
    throw store_failure(keys.empty() ? "" : keys.front(), cause);
  }
}

void C10dStore::remove(const std::string& key) {
  const std::lock_guard lock(mutex_);
  try {
    store_->deleteKey(key);
  } catch (const std::exception& cause) {
    throw store_failure(key, cause);
  }
}

std::string C10dStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto nap = std::chrono::microseconds(200);
  while (true) {
    if (auto value = try_get(key)) return *std::move(value);
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(ErrorKind::kTimeout, "the key '" + key + "' did not appear in the c10d store within " +
                                           std::to_string(timeout.count()) + " ms");
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, std::chrono::microseconds(10000));
  }
}

std::int64_t C10dStore::add(const std::string& key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  try {
    return store_->add(key, amount);
  } catch (const std::exception& cause) {
    throw store_failure(key, cause);
  }
}

}  // namespace altorch::backend
