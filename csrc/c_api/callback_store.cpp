// SPDX-License-Identifier: BSD-3-Clause
#include "c_api/callback_store.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/error.h"
#include "platform/native_thread.h"
#include "rendezvous/poll_pause.h"

namespace altorch {
namespace {

struct StoreRequest {
  std::string key;
  std::function<int(const char*)> run;
  int code = 0;
  bool done = false;
};

// Never freed: threads outlive main().
struct Worker {
  std::mutex mutex;  // guards what follows
  std::condition_variable asked, answered;
  std::deque<std::shared_ptr<StoreRequest>> queue;
  bool runs = false, busy = false, stopped = false;

  void loop() {
    std::unique_lock lock(mutex);
    while (true) {
      asked.wait(lock, [&] { return !queue.empty(); });
      const auto request = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      const int code = request->run(request->key.c_str());
      lock.lock();
      busy = false;
      request->code = code;
      request->done = true;
      answered.notify_all();
    }
  }
};

Worker& worker() {
  static auto* instance = new Worker();
  return *instance;
}

}  // namespace

void CallbackStore::ask(const std::string& key, std::function<int(const char*)> request) {
  Worker& own = worker();
  const auto posted = std::make_shared<StoreRequest>();
  posted->key = prefix_.empty() ? key : prefix_ + "/" + key;
  posted->run = std::move(request);
  std::unique_lock lock(own.mutex);
  if (own.stopped) throw Error(ErrorKind::kClosed, "the process is about to end");
  if (!own.runs) {
    start_native_thread("al-store", [&own] { own.loop(); });
    own.runs = true;
  }
  own.queue.push_back(posted);
  own.asked.notify_one();
  if (!own.answered.wait_for(lock, kAnswer, [&] { return posted->done || own.stopped; })) {
    std::erase(own.queue, posted);
    throw Error(ErrorKind::kTransport, "the job's store does not answer (key '" + posted->key + "')");
  }
  if (!posted->done) throw Error(ErrorKind::kClosed, "the process is about to end");
  if (posted->code != 0)
    throw Error(ErrorKind::kTransport, "the job's store failed (key '" + posted->key + "')");
}

void CallbackStore::stop() {
  Worker& own = worker();
  std::unique_lock lock(own.mutex);
  own.stopped = true;
  own.queue.clear();
  own.answered.notify_all();
  own.answered.wait_for(lock, kAnswer, [&] { return !own.busy; });
}

void CallbackStore::set(const std::string& key, const std::string& value) {
  ask(key,
      [store = &store_, value](const char* full) { return store->set(full, value.data(), value.size()); });
}

void CallbackStore::set_once(const std::string& key, const std::string& value) {
  ask(key, [store = &store_, value](const char* full) {
    return store->set_once(full, value.data(), value.size());
  });
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
  const auto value = std::make_shared<std::optional<std::string>>();
  ask(key, [store = &store_, value](const char* full) { return store->get(full, value.get()); });
  return *value;
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
  const auto sum = std::make_shared<std::int64_t>(0);
  ask(key, [store = &store_, amount, sum](const char* full) { return store->add(full, amount, sum.get()); });
  return *sum;
}

bool CallbackStore::is_hosted() {
  const std::lock_guard lock(worker().mutex);
  return !worker().stopped;
}

}  // namespace altorch

extern "C" void altorch_answer(void* answer, const char* data, size_t bytes) {
  static_cast<std::optional<std::string>*>(answer)->emplace(data, bytes);
}
