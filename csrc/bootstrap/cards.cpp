#include "bootstrap/cards.h"

#include <algorithm>
#include <map>
#include <random>

#include "common/error.h"

namespace altorch {
namespace {

constexpr char kFieldEnd = '\x1f';
constexpr char kCardEnd = '\x1e';

std::vector<std::string> split(const std::string& text, char end) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t stop = text.find(end, at);
    if (stop == std::string::npos) stop = text.size();
    parts.push_back(text.substr(at, stop - at));
    at = stop + 1;
  }
  return parts;
}

std::string draw_job_name() {
  std::random_device random;
  constexpr char digits[] = "0123456789abcdef";
  std::string name = "altorch-";
  for (int i = 0; i < 16; ++i) name += digits[random() % 16];
  return name;
}

std::string missing_ranks(int size, KeyValueStore& store, const std::string& prefix) {
  std::string names;
  int missing = 0;
  for (int i = 0; i < size; ++i) {
    if (store.try_get(prefix + std::to_string(i))) continue;
    if (++missing <= 8) names += (names.empty() ? "" : ", ") + std::to_string(i);
  }
  if (missing > 8) names += " and " + std::to_string(missing - 8) + " more";
  return names;
}

}  // namespace

std::string encode(const RankCard& card) {
  std::string text;
  for (const std::string& field :
       {card.problem, std::to_string(static_cast<int>(card.mode)), card.version, card.job, card.node,
        std::to_string(card.memory.process), std::to_string(card.memory.address),
        std::to_string(card.memory.value), std::to_string(card.free_shared_memory), card.address,
        std::string(card.address_is_loopback ? "1" : "0")}) {
    for (char c : field) text += c == kFieldEnd || c == kCardEnd ? ' ' : c;
    text += kFieldEnd;
  }
  return text;
}

RankCard decode_card(const std::string& text) {
  const std::vector<std::string> fields = split(text, kFieldEnd);
  if (fields.size() != 11) {
    throw Error(ErrorKind::kInternal,
                "The ranks run different versions of altorch: install the same one everywhere.");
  }
  RankCard card;
  card.problem = fields[0];
  card.mode = static_cast<StartMode>(std::stoi(fields[1]));
  card.version = fields[2];
  card.job = fields[3];
  card.node = fields[4];
  card.memory = {static_cast<pid_t>(std::stol(fields[5])), std::stoull(fields[6]), std::stoull(fields[7])};
  card.free_shared_memory = std::stoull(fields[8]);
  card.address = fields[9];
  card.address_is_loopback = fields[10] == "1";
  return card;
}

CardTable exchange_cards(const RankCard& own, int rank, int size, KeyValueStore& store,
                         const std::string& prefix, std::chrono::milliseconds timeout) {
  const std::string card_key = prefix + "card/";
  const std::string table_key = prefix + "cards";
  std::string all;
  if (rank == 0) {
    // The table: the job's name, then the cards.
    all = draw_job_name() + kCardEnd + encode(own) + kCardEnd;
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (int i = 1; i < size; ++i) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      try {
        all +=
            store.get(card_key + std::to_string(i), std::max(left, std::chrono::milliseconds(1))) + kCardEnd;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kTimeout) throw;
        store.set(card_key + "0", encode(own));
        throw Error(ErrorKind::kTimeout, "Starting MPI: rank(s) " + missing_ranks(size, store, card_key) +
                                             " did not come within " +
                                             std::to_string(timeout.count() / 1000) +
                                             " s. Look at their output, or raise ALTORCH_BOOTSTRAP_SECONDS.");
      }
    }
    store.set(table_key, all);
  } else {
    store.set(card_key + std::to_string(rank), encode(own));
    try {
      all = store.get(table_key, timeout);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kTimeout) throw;
      throw Error(ErrorKind::kTimeout,
                  "Starting MPI: rank 0 did not hear from every rank within " +
                      std::to_string(timeout.count() / 1000) +
                      " s. Look at the ranks' output, or raise ALTORCH_BOOTSTRAP_SECONDS.");
    }
  }
  const std::vector<std::string> parts = split(all, kCardEnd);
  CardTable table;
  table.job = parts.at(0);
  for (std::size_t i = 1; i < parts.size(); ++i) table.cards.push_back(decode_card(parts[i]));
  return table;
}

bool all_agree(bool ok, int size, KeyValueStore& store, const std::string& key,
               std::chrono::milliseconds timeout) {
  // Low half: ranks that came. High half: ranks that said no.
  constexpr std::int64_t kNo = std::int64_t{1} << 32;
  const std::int64_t sum = store.add(key, ok ? 1 : 1 + kNo);
  if (sum % kNo == size) {
    const bool agreed = sum < kNo;
    store.set(key + "/verdict", agreed ? "yes" : "no");
    return agreed;
  }
  return store.get(key + "/verdict", timeout) == "yes";
}

std::vector<int> number_nodes(const std::vector<std::string>& node_keys) {
  std::map<std::string, int> numbers;
  std::vector<int> nodes;
  for (const std::string& key : node_keys) {
    nodes.push_back(numbers.try_emplace(key, static_cast<int>(numbers.size())).first->second);
  }
  return nodes;
}

}  // namespace altorch
