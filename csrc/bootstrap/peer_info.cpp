// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/peer_info.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/number.h"
#include "base/random_name.h"
#include "rendezvous/store_allgather.h"

namespace altorch {
namespace {

constexpr char kFieldEnd = '\x1f';
constexpr char kPeerInfoEnd = '\x1e';

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

constexpr const char* kJobPrefix = "altorch-";
constexpr std::size_t kLongestJob = 64;

// Files and folders are named after it, so it must be no path.
std::string job_name_from(const std::string& text) {
  const bool is_one = text.size() < kLongestJob && text.starts_with(kJobPrefix) &&
                      to_number<std::uint64_t>(text.substr(std::string_view(kJobPrefix).size()), 16);
  if (!is_one) throw Error(ErrorKind::kInternal, "rank 0 wrote " + excerpt(text) + " as the name of the job");
  return text;
}

}  // namespace

std::string encode(const PeerInfo& peer) {
  std::string text;
  for (const std::string& field :
       {peer.problem, std::to_string(static_cast<int>(peer.mode)), peer.version, peer.job, peer.node,
        std::to_string(peer.memory.process), std::to_string(peer.memory.address),
        std::to_string(peer.memory.value), std::to_string(peer.free_shared_memory), peer.address,
        std::string(peer.address_is_loopback ? "1" : "0"), peer.cores, peer.network,
        std::string(peer.has_fast_network ? "1" : "0"), std::string(peer.allows_ofi ? "1" : "0")}) {
    for (char c : field) text += c == kFieldEnd || c == kPeerInfoEnd ? ' ' : c;
    text += kFieldEnd;
  }
  return text;
}

PeerInfo decode_peer_info(const std::string& text) {
  const std::vector<std::string> fields = split(text, kFieldEnd);
  if (fields.size() != 15) {
    throw Error(ErrorKind::kInternal,
                "The ranks run different versions of altorch: install the same one everywhere.");
  }
  PeerInfo peer;
  peer.problem = fields[0];
  const int mode = number_from<int>(fields[1], "how it starts MPI");
  if (mode < 0 || mode > static_cast<int>(StartMode::kRunning))
    throw Error(ErrorKind::kInternal, "another rank wrote " + excerpt(fields[1]) + " as how it starts MPI");
  peer.mode = static_cast<StartMode>(mode);
  peer.version = fields[2];
  peer.job = fields[3];
  peer.node = fields[4];
  peer.memory = {number_from<pid_t>(fields[5], "the id of its process"),
                 number_from<std::uint64_t>(fields[6], "an address in its memory"),
                 number_from<std::uint64_t>(fields[7], "the number of its process")};
  peer.free_shared_memory = number_from<std::uint64_t>(fields[8], "the size of its /dev/shm");
  peer.address = fields[9];
  peer.address_is_loopback = fields[10] == "1";
  peer.cores = fields[11];
  peer.network = fields[12];
  peer.has_fast_network = fields[13] == "1";
  peer.allows_ofi = fields[14] == "1";
  return peer;
}

PeerTable exchange_peer_info(const PeerInfo& own, int rank, int size, KeyValueStore& store,
                             const std::string& prefix, std::chrono::milliseconds timeout) {
  // Rank 0 brings the job's name with what it tells.
  const std::string name = rank == 0 ? kJobPrefix + random_name() : "";
  const auto infos = store_allgather(store, prefix + "peers", rank, size, timeout, "to start MPI",
                                     name + kPeerInfoEnd + encode(own));
  PeerTable table;
  for (const std::string& info : infos) {
    const std::size_t end = info.find(kPeerInfoEnd);
    if (table.peers.empty()) table.job = job_name_from(info.substr(0, end));
    table.peers.push_back(decode_peer_info(end == std::string::npos ? "" : info.substr(end + 1)));
  }
  return table;
}

bool all_agree(bool ok, int size, KeyValueStore& store, const std::string& key,
               std::chrono::milliseconds timeout) {
  // Low half: ranks that came. High half: ranks that said no.
  constexpr std::int64_t kNo = std::int64_t{1} << 32;
  const std::int64_t sum = store.add(key, ok ? 1 : 1 + kNo);
  if (sum % kNo == size) {
    const bool agreed = sum < kNo;
    store.set(key + "/agreed", agreed ? "yes" : "no");
    return agreed;
  }
  return store.get(key + "/agreed", timeout) == "yes";
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
