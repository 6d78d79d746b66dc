// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store_allgather.h"

#include "base/error.h"
#include "base/fields.h"
#include "base/number.h"
#include "rendezvous/absent.h"
#include "rendezvous/poll_pause.h"
#include "rendezvous/retrying_store.h"

namespace altorch {
namespace {

std::optional<std::string> collect(KeyValueStore& store, const std::string& key, int size) {
  const auto count = store.try_get(key + "/count");
  if (!count || number_from<std::int64_t>(*count, "how many ranks have come") < size - 1) return std::nullopt;
  std::vector<std::string> keys;
  for (int rank = 0; rank < size; ++rank) keys.push_back(key + "/" + std::to_string(rank));
  // A rank that comes a second time, after a failure, is counted twice: then a text is still
  // missing.
  const auto infos = store.multi_get(keys);
  if (!infos) return std::nullopt;
  std::string table = encode_fields(*infos);
  store.set(key + "/table", table);
  return table;
}

}  // namespace

std::vector<std::string> store_allgather(KeyValueStore& store, const std::string& key, int rank, int size,
                                         std::chrono::milliseconds timeout, const std::string& purpose,
                                         const std::string& info) {
  if (size == 1) return {info};
  const auto key_of = [&](int who) { return key + "/" + std::to_string(who); };
  try {
    post_request([&] { store.set(key_of(rank), info); });
    if (rank != 0) post_request([&] { store.add(key + "/count", 1); });
    const std::string table = poll_until_found(store, size, timeout, [&] {
      return rank == 0 ? collect(store, key, size) : store.try_get(key + "/table");
    });
    auto infos = decode_fields(table);
    if (infos.size() == static_cast<std::size_t>(size)) return infos;
    throw Error(ErrorKind::kInternal, "the table of an allgather has " + std::to_string(infos.size()) +
                                          " rows for " + std::to_string(size) + " ranks");
  } catch (const Error& error) {
    throw error.with_prefix(absent_ranks(store, {key, key_of, rank, size}) + " " + purpose + ": ");
  }
}

std::optional<std::string> first_unsupported_reason(KeyValueStore& store, const std::string& key, int rank,
                                                    int size, std::chrono::milliseconds timeout,
                                                    const std::string& purpose,
                                                    const std::string& unsupported_reason,
                                                    std::span<const int> names) {
  const auto infos = store_allgather(store, key, rank, size, timeout, purpose, unsupported_reason);
  for (std::size_t other = 0; other < infos.size(); ++other) {
    if (infos[other].empty()) continue;
    const int name = names.empty() ? static_cast<int>(other) : names[other];
    return "on rank " + std::to_string(name) + " " + infos[other];
  }
  return std::nullopt;
}

void leave_in_turn(KeyValueStore& store, const std::string& key, int rank, int size,
                   std::chrono::milliseconds timeout) noexcept {
  if (size == 1) return;
  const auto deadline = WaitClock::now() + timeout;
  try {
    if (rank != 0) {
      store.add(key, 1);
      return;
    }
    PollPause pause(1, deadline);
    while (WaitClock::now() < deadline) {
      const auto left = try_request([&] { return store.try_get(key); });
      if (left && to_number<std::int64_t>(*left).value_or(0) >= size - 1) return;
      store.check_peers();
      pause.pause();
    }
  } catch (const std::exception&) {  // what is wrong shows elsewhere, in better words
  }
}

}  // namespace altorch
