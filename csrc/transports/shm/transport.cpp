// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/transport.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/adaptive_wait.h"
#include "base/fields.h"
#include "base/log.h"
#include "platform/cores.h"
#include "platform/fabric.h"
#include "rendezvous/shared_memory.h"
#include "rendezvous/store_allgather.h"
#include "transports/shm/channel.h"
#include "transports/shm/collectives.h"

namespace altorch {
namespace {

// Where the ranks of a group are, and what those of this rank's node have in common.
struct Shared {
  std::vector<int> node_of_rank;        // by rank of the group, numbered in the order of their first ranks
  std::vector<int> leader_places;       // by node
  int nodes = 0, largest = 0;           // the most ranks of a node
  std::vector<shm::Process> processes;  // by rank of the node; empty where they may not copy from each other
  std::vector<int> neighbours;          // the ranks of the group that are on this node
  int rank = 0, size = 0;               // among them
  std::optional<int> cores = {};        // of these
  std::size_t area_bytes = 0, ring_bytes = 0;
  std::shared_ptr<std::byte> memory;

  bool one_node() const { return nodes == 1; }
  std::size_t segment_bytes() const { return shm::Segment::bytes(size, area_bytes); }
  // Messages go through the shared memory only if it reaches all ranks of the group.
  std::size_t bytes() const {
    return segment_bytes() + (one_node() ? shm::Mail::bytes(size, ring_bytes) : 0);
  }
  ShmCollectives collectives() const {
    return ShmCollectives(shm::Segment(memory, rank, size, area_bytes, cores), processes, neighbours);
  }
};

class ShmLinks : public Links {
 public:
  // `other`: null where it would bring nothing.
  ShmLinks(Shared shared, std::unique_ptr<Links> other)
      : other_(std::move(other)),
        collectives_(shared.collectives()),
        channel_(shared.memory,
                 shm::Mail(shared.memory.get() + shared.segment_bytes(), shared.rank, shared.size,
                           shared.ring_bytes, AdaptiveWait::is_crowd(shared.size, shared.cores)),
                 shared.processes) {}

  const char* transport() const override { return "shm"; }
  Channel& channel() override { return channel_; }
  std::vector<NativeCollectives*> collectives() override {
    std::vector<NativeCollectives*> all = {&collectives_};
    if (other_) {
      for (NativeCollectives* each : other_->collectives()) all.push_back(each);
    }
    return all;
  }
  NativeWindows* native_windows() override { return other_ ? other_->native_windows() : nullptr; }
  void mark_broken() override {
    if (other_) other_->mark_broken();
  }
  void mark_tainted() override {
    if (other_) other_->mark_tainted();
  }

 private:
  const std::unique_ptr<Links> other_;
  ShmCollectives collectives_;
  ShmChannel channel_;
};

// The links of a group on several nodes: those of another transport, and the memory that the ranks
// of this node share.
class NodeLinks : public Links {
 public:
  NodeLinks(Shared shared, std::unique_ptr<Links> other) : other_(std::move(other)) {
    if (shared.size > 1) collectives_.emplace(shared.collectives());
    node_ = {std::move(shared.node_of_rank), std::move(shared.leader_places),
             collectives_ ? &*collectives_ : nullptr};
  }
  const char* transport() const override { return other_->transport(); }
  Channel& channel() override { return other_->channel(); }
  std::vector<NativeCollectives*> collectives() override { return other_->collectives(); }
  const Node* node() override { return &node_; }
  NativeWindows* native_windows() override { return other_->native_windows(); }
  void mark_broken() override { other_->mark_broken(); }
  void mark_tainted() override { other_->mark_tainted(); }

 private:
  const std::unique_ptr<Links> other_;
  std::optional<ShmCollectives> collectives_;
  Node node_;
};

std::optional<std::string> unwanted(int ranks) {
  if (!ShmCollectives::are_wanted()) return "ALTORCH_SHM_BYTES=0 refuses it";
  if (ranks <= shm::Segment::kMostRanks) return std::nullopt;
  return "it is for " + std::to_string(shm::Segment::kMostRanks) + " ranks at most";
}

// The fields that come before those of shm::Process: the node, the usable cores, and whether a
// network device is near.
constexpr std::size_t kNodeFields = 3;
constexpr const char* kNear = "near";

Fields introduction() {
  const std::string cores = usable_cores();
  Fields words = {shared_memory_node(), cores, is_near_network(cores) ? kNear : ""};
  for (std::string& field : shm::Process::own().fields()) words.push_back(std::move(field));
  return words;
}

// `words`: the introductions of all ranks.
Shared shared_ranks_of(const std::vector<std::string>& words, int rank) {
  Shared found;
  std::vector<Fields> all;
  for (const std::string& word : words)
    all.push_back(decode_fields(word, kNodeFields + shm::Process::kFields));
  std::map<std::string, int> node_of;  // by node
  constexpr int kNone = -1;
  std::vector<int> sizes;
  for (const Fields& fields : all) {
    const int node = node_of.emplace(fields[0], found.nodes).first->second;
    if (node == found.nodes) {
      ++found.nodes;
      sizes.push_back(0);
      found.leader_places.push_back(kNone);
    }
    int& leader = found.leader_places[static_cast<std::size_t>(node)];
    if (leader == kNone && fields[2] == kNear) leader = sizes[static_cast<std::size_t>(node)];
    found.largest = std::max(found.largest, ++sizes[static_cast<std::size_t>(node)]);
    found.node_of_rank.push_back(node);
  }
  std::ranges::replace(found.leader_places, kNone, 0);
  const auto self = static_cast<std::size_t>(rank);
  std::vector<std::string> cores;
  for (std::size_t each = 0; each < all.size(); ++each) {
    if (found.node_of_rank[each] != found.node_of_rank[self]) continue;
    if (each == self) found.rank = found.size;
    ++found.size;
    found.neighbours.push_back(static_cast<int>(each));
    cores.push_back(all[each][1]);
    all[each].erase(all[each].begin(), all[each].begin() + kNodeFields);
    found.processes.push_back(shm::Process::from(all[each]));
  }
  found.cores = count_cores(cores);
  found.area_bytes = shm::Segment::area_bytes(found.size, ShmCollectives::limit());
  found.ring_bytes = shm::Mail::ring_bytes(found.size, ShmCollectives::limit());
  return found;
}

// Together with the other ranks: all get the same answer. Nothing where no two ranks can share
// memory.
std::optional<Shared> share(const Membership& group, KeyValueStore& store) {
  if (!ShmCollectives::are_wanted()) return std::nullopt;
  const int rank = group.rank, size = group.size();
  const std::string purpose = "to share memory in group '" + group.name + "'";
  const auto words =
      store_allgather(store, "shm/nodes", rank, size, group.timeout, purpose, encode_fields(introduction()));
  Shared shared = shared_ranks_of(words, rank);
  if (shared.largest == 1 || unwanted(shared.largest)) return std::nullopt;

  const auto self = static_cast<std::size_t>(rank);
  std::string unsupported_reason, no_copies;
  if (shared.size > 1) {
    try {
      const std::string key = "shm/segment/" + std::to_string(shared.node_of_rank[self]);
      shared.memory = share_memory(store, key, shared.rank, shared.size, shared.bytes(), group.timeout);
    } catch (const Error& error) {
      if (ends_a_wait(error.kind())) throw;  // the maker of the group tells the others
      unsupported_reason = error.what();
    }
    // What holds for one neighbour holds for all: they are processes of one user.
    const auto neighbour = static_cast<std::size_t>((shared.rank + 1) % shared.size);
    no_copies = shared.processes[neighbour].unsupported_reason().value_or("");
  }
  const auto answers = store_allgather(store, "shm/shared", rank, size, group.timeout, purpose,
                                       encode_fields({unsupported_reason, no_copies}));
  for (std::size_t each = 0; each < answers.size(); ++each) {
    const Fields said = decode_fields(answers[each], 2);
    if (!said[0].empty()) {
      if (rank == 0)
        log(LogLevel::kWarning, "group '" + group.name + "' goes without shared memory: " + said[0]);
      return std::nullopt;
    }
    if (!said[1].empty() && shared.node_of_rank[each] == shared.node_of_rank[self]) shared.processes.clear();
  }
  return shared;
}

}  // namespace

std::optional<std::string> ShmTransport::unsupported_reason(int ranks) {
  if (auto why = unwanted(ranks)) return why;
  return shared_memory_unsupported_reason();
}

std::unique_ptr<Links> ShmTransport::open(const Membership& group, KeyValueStore& store) {
  auto shared = share(group, store);
  if (!shared) return other_->open(group, store);
  if (!shared->one_node()) return std::make_unique<NodeLinks>(std::move(*shared), other_->open(group, store));
  auto other = other_->has_collectives() ? other_->open(group, store) : nullptr;
  return std::make_unique<ShmLinks>(std::move(*shared), std::move(other));
}

}  // namespace altorch
