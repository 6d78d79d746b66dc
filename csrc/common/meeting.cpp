#include "common/meeting.h"

#include "common/error.h"

namespace altorch {

void meet(KeyValueStore& store, const std::string& key, int rank, int size, std::chrono::milliseconds timeout,
          const std::string& purpose) {
  store.set(key + "/" + std::to_string(rank), "1");
  for (int peer = 0; peer < size; ++peer) {
    try {
      store.get(key + "/" + std::to_string(peer), timeout);
    } catch (const Error& error) {
      throw Error(error.kind(),
                  "rank " + std::to_string(peer) + " has not come " + purpose + ": " + error.what());
    }
  }
}

}  // namespace altorch
