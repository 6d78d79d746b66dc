#include "common/verdict.h"

#include "common/absent.h"
#include "common/error.h"
#include "common/number.h"
#include "common/poll_pause.h"
#include "common/retrying_store.h"

namespace altorch {
namespace {

constexpr std::chrono::seconds kToWriteIt{5};  // of whoever took that upon himself

// Behind what is written: no text is empty then.
constexpr char kMade[] = "made", kAgainst = '!';

}  // namespace

std::string agree_on_verdict(KeyValueStore& store, const std::string& key, int rank, int size,
                             std::chrono::milliseconds timeout, const std::string& obstacle) {
  if (size == 1) return obstacle;
  const auto deadline = WaitClock::now() + timeout;
  bool has_decided = false;
  const auto decide = [&](const std::string& verdict) {
    if (has_decided) return;
    has_decided = true;
    post_request([&] {
      if (store.add(key + "/decided", 1) == 1) store.set(key + "/verdict", verdict);
    });
  };
  if (obstacle.empty()) {
    post_request([&] { store.add(key + "/count", 1); });
  } else {
    decide(kAgainst + ("rank " + std::to_string(rank) + ": " + obstacle));
  }
  PollPause pause(size, deadline + kToWriteIt);
  while (true) {
    if (const auto verdict = try_request([&] { return store.try_get(key + "/verdict"); }))
      return *verdict == kMade ? "" : verdict->substr(1);
    if (rank == 0 && !has_decided) {
      const auto count = try_request([&] { return store.try_get(key + "/count"); });
      if (count && number_from<std::int64_t>(*count, "how many ranks are done") >= size) decide(kMade);
    }
    try {
      store.check_peers();
    } catch (const Error& error) {
      decide(kAgainst + std::string(error.what()));
    }
    const auto now = WaitClock::now();
    if (now > deadline)
      decide(kAgainst +
             ("rank " + std::to_string(rank) + " has waited for the others for " + in_seconds(timeout)));
    if (now > deadline + kToWriteIt) {
      throw Error(ErrorKind::kTimeout,
                  "no verdict has come within " + in_seconds(timeout) + ": is the store's host stopped?");
    }
    pause.pause();
  }
}

}  // namespace altorch
