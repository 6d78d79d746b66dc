#include "common/meeting.h"

#include "common/error.h"

namespace altorch {

std::vector<std::string> meet(KeyValueStore& store, const std::string& key, int rank, int size,
                              std::chrono::milliseconds timeout, const std::string& purpose,
                              const std::string& word) {
  store.set(key + "/" + std::to_string(rank), word);
  std::vector<std::string> words;
  for (int peer = 0; peer < size; ++peer) {
    try {
      words.push_back(store.get(key + "/" + std::to_string(peer), timeout));
    } catch (const Error& error) {
      throw Error(error.kind(),
                  "rank " + std::to_string(peer) + " has not come " + purpose + ": " + error.what());
    }
  }
  return words;
}

}  // namespace altorch
