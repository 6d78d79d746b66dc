// SPDX-License-Identifier: BSD-3-Clause
#include "c_api/callback_store.h"

#include <atomic>
#include <shared_mutex>

#include "base/error.h"
#include "rendezvous/poll_pause.h"

namespace altorch {
namespace {

// Held shared by a request. Never freed: threads outlive main().
struct Gateway {
  std::shared_mutex mutex;
  std::atomic<bool> stopped{false};
};

Gateway& gateway() {
  static auto* instance = new Gateway();
  return *instance;
}

}  // namespace

template <typename Request>
void CallbackStore::ask(const std::string& key, Request&& request) {
  const std::shared_lock under_way(gateway().mutex);
  if (gateway().stopped) throw Error(ErrorKind::kClosed, "the process is about to end");
  const std::string full = prefix_.empty() ? key : prefix_ + "/" + key;
  if (request(full.c_str()) != 0)
    throw Error(ErrorKind::kTransport, "the store did not answer about key '" + full + "'");
}

void CallbackStore::stop() {
  gateway().stopped = true;
  const std::lock_guard none_under_way(gateway().mutex);
}

void CallbackStore::set(const std::string& key, const std::string& value) {
  ask(key, [&](const char* full) { return store_.set(full, value.data(), value.size()); });
}

void CallbackStore::set_once(const std::string& key, const std::string& value) {
  ask(key, [&](const char* full) { return store_.set_once(full, value.data(), value.size()); });
}

std::string CallbackStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = WaitClock::now() + timeout;
  PollPause poll(1, deadline);
  while (true) {
    if (auto value = try_get(key)) return *value;
    if (WaitClock::now() >= deadline)
      throw Error(ErrorKind::kTimeout, "key '" + key + "' did not come in time");
    poll.pause();
  }
}

std::optional<std::string> CallbackStore::try_get(const std::string& key) {
  std::optional<std::string> value;
  ask(key, [&](const char* full) { return store_.get(full, &value); });
  return value;
}

std::optional<std::vector<std::string>> CallbackStore::multi_get(const std::vector<std::string>& keys) {
  std::vector<std::string> values;
  for (const std::string& key : keys) {
    auto value = try_get(key);
    if (!value) return std::nullopt;
    values.push_back(std::move(*value));
  }
  return values;
}

std::int64_t CallbackStore::add(const std::string& key, std::int64_t amount) {
  std::int64_t sum = 0;
  ask(key, [&](const char* full) { return store_.add(full, amount, &sum); });
  return sum;
}

bool CallbackStore::is_hosted() { return !gateway().stopped; }

}  // namespace altorch

extern "C" void altorch_answer(void* answer, const char* data, size_t bytes) {
  static_cast<std::optional<std::string>*>(answer)->emplace(data, bytes);
}
