// SPDX-License-Identifier: BSD-3-Clause
#include "backend/store/store.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "health/sockets.h"
#include "rendezvous/poll_pause.h"
#include "rendezvous/retrying_store.h"

namespace altorch::backend {
namespace {

// One atomic request. Returns the value that the key has then.
std::string set_if_missing(c10d::Store& store, const std::string& key, const std::string& value) {
  const std::vector<std::uint8_t> nothing, bytes(value.begin(), value.end());
  const auto found = store.compareSet(key, nothing, bytes);
  return {found.begin(), found.end()};
}

}  // namespace

C10dStore::C10dStore(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                     std::chrono::milliseconds timeout)
    : prefix_(prefix), timeout_(timeout), worker_(StoreWorker::of(store)) {}

std::string C10dStore::prefixes_of(const c10::intrusive_ptr<c10d::Store>& store) {
  struct Prefix : c10d::PrefixStore {  // torch shows it to derived classes only
    static const std::string& of(c10d::PrefixStore& shown) { return shown.*(&Prefix::prefix_); }
  };
  auto* shown = dynamic_cast<c10d::PrefixStore*>(store.get());  // torch's own cast leaks what it cannot cast
  return shown ? prefixes_of(shown->getUnderlyingStore()) + Prefix::of(*shown) + "/" : "";
}

c10::intrusive_ptr<c10d::Store> C10dStore::c10d() const {
  return c10::make_intrusive<c10d::PrefixStore>(prefix_, worker_->store());
}

c10::intrusive_ptr<c10d::Store> C10dStore::callers() const {
  return c10::make_intrusive<c10d::PrefixStore>(prefix_, worker_->original());
}

void C10dStore::finish(const StoreRequest& request, const std::string& key) {
  if (!worker_->wait(request, timeout_)) {
    throw Error(ErrorKind::kTimeout, "the c10d store does not answer (key '" + key +
                                         "'); is the process that hosts it stopped, or its node gone?");
  }
  if (!request.error) return;
  try {
    std::rethrow_exception(request.error);
  } catch (const c10::Error& cause) {
    throw Error(ErrorKind::kTransport,
                "the c10d store failed at key '" + key + "': " + cause.what_without_backtrace());
  } catch (const std::exception& cause) {
    throw Error(ErrorKind::kTransport, "the c10d store failed at key '" + key + "': " + cause.what());
  }
}

void C10dStore::carry_out(const std::string& key, std::function<void(c10d::Store&)> run) {
  auto request = std::make_shared<StoreRequest>();
  request->run = std::move(run);
  worker_->submit(request);
  finish(*request, key);
}

void C10dStore::set(const std::string& key, const std::string& value) {
  carry_out(key, [key = full(key), value](c10d::Store& store) { store.set(key, value); });
}

void C10dStore::set_once(const std::string& key, const std::string& value) {
  carry_out(key, [key = full(key), value](c10d::Store& store) {
    try {
      set_if_missing(store, key, value);
    } catch (const c10::DistNetworkError&) {
      throw;
    } catch (const std::exception&) {  // a Store in Python may lack it
      if (!store.check({key}) && store.add(key + "/set", 1) == 1) store.set(key, value);
    }
  });
}

std::int64_t C10dStore::add(const std::string& key, std::int64_t amount) {
  const auto sum = std::make_shared<std::int64_t>();  // outlives the wait
  carry_out(key, [key = full(key), amount, sum](c10d::Store& store) { *sum = store.add(key, amount); });
  return *sum;
}

std::string C10dStore::claim(const c10::intrusive_ptr<c10d::Store>& place, const std::string& key,
                             const std::string& value, std::chrono::milliseconds timeout) {
  C10dStore store(place, "", std::max<std::chrono::milliseconds>(timeout, kLook));
  const auto there = std::make_shared<std::string>();  // outlives the wait
  store.carry_out(key, [=](c10d::Store&) { *there = set_if_missing(*place, key, value); });
  return *there;
}

bool C10dStore::is_hosted() {
  c10::intrusive_ptr<c10d::Store> store;
  try {
    store = worker_->original();
  } catch (const Error&) {  // of a process that has let it go
    return false;
  }
  const auto* tcp = dynamic_cast<c10d::TCPStore*>(store.get());
  if (!tcp) return true;
  return !nothing_listens(tcp->getHost(), tcp->getPort());
}

// If an answer is late, a second request for the same key waits for that answer. So a store that is
// slow, but not stopped, gets no request twice.
C10dStore::Values C10dStore::read(const std::vector<std::string>& keys) {
  const std::string& name = keys.front();
  std::shared_ptr<Read> request;
  {
    const std::lock_guard lock(mutex_);
    if (const auto late = late_.find(name); late != late_.end()) request = late->second;
  }
  if (!request) {
    request = std::make_shared<Read>();
    std::vector<std::string> full_keys;
    for (const std::string& key : keys) full_keys.push_back(full(key));
    request->run = [into = request.get(), full_keys = std::move(full_keys)](c10d::Store& store) {
      if (!store.check(full_keys)) return;
      std::vector<std::string> values;
      if (full_keys.size() == 1) {
        const auto value = store.get(full_keys.front());
        values.emplace_back(value.begin(), value.end());
      } else {
        for (const auto& value : store.multiGet(full_keys)) values.emplace_back(value.begin(), value.end());
      }
      into->values = std::move(values);
    };
    worker_->submit(request);
  }
  try {
    finish(*request, name);
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    if (error.kind() == ErrorKind::kTimeout)
      late_[name] = request;
    else
      late_.erase(name);
    throw;
  }
  const std::lock_guard lock(mutex_);
  late_.erase(name);
  return request->values;
}

std::optional<std::string> C10dStore::try_get(const std::string& key) {
  auto values = read({key});
  return values ? std::optional(std::move(values->front())) : std::nullopt;
}

std::optional<std::vector<std::string>> C10dStore::multi_get(const std::vector<std::string>& keys) {
  return keys.empty() ? Values(std::vector<std::string>()) : read(keys);
}

std::string C10dStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = WaitClock::now() + timeout;
  PollPause pause(1, deadline);
  while (true) {
    if (auto value = try_request([&] { return try_get(key); })) return *std::move(value);
    if (WaitClock::now() > deadline) {
      throw Error(ErrorKind::kTimeout, "the key '" + key + "' did not appear in the c10d store within " +
                                           std::to_string(timeout.count()) + " ms");
    }
    pause.pause();
  }
}

}  // namespace altorch::backend
