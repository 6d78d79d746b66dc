#include "transports/shm/transport.h"

#include <algorithm>
#include <optional>
#include <string>

#include "common/fields.h"
#include "common/log.h"
#include "common/meeting.h"
#include "transports/shm/channel.h"
#include "transports/shm/collectives.h"
#include "transports/shm/shared_memory.h"

namespace altorch {
namespace {

// What the ranks of a group on one node have in common.
struct Shared {
  std::shared_ptr<std::byte> memory;
  std::size_t area_bytes = 0, ring_bytes = 0;
  std::vector<shm::Process> processes;  // by rank; empty where they may not copy from each other

  std::size_t segment_bytes(int size) const { return shm::Segment::bytes(size, area_bytes); }
  std::size_t bytes(int size) const { return segment_bytes(size) + shm::Mail::bytes(size, ring_bytes); }
};

class ShmLinks : public Links {
 public:
  ShmLinks(Shared shared, int rank, int size, std::unique_ptr<Links> other)
      : other_(std::move(other)),
        collectives_(shm::Segment(shared.memory, rank, size, shared.area_bytes), shared.processes),
        channel_(shared.memory,
                 shm::Mail(shared.memory.get() + shared.segment_bytes(size), rank, size, shared.ring_bytes),
                 std::move(shared.processes)) {}

  const char* transport() const override { return "shm"; }
  Channel& channel() override { return channel_; }
  std::vector<WholeCollectives*> collectives() override {
    std::vector<WholeCollectives*> all = {&collectives_};
    if (other_) {
      for (WholeCollectives* each : other_->collectives()) all.push_back(each);
    }
    return all;
  }
  void mark_broken() override {
    if (other_) other_->mark_broken();
  }

 private:
  const std::unique_ptr<Links> other_;  // null: it would bring nothing
  ShmCollectives collectives_;
  ShmChannel channel_;
};

// The same on all ranks.
std::optional<std::string> unwanted(int ranks) {
  if (!ShmCollectives::are_wanted()) return "ALTORCH_SHM_BYTES=0 refuses it";
  if (ranks <= shm::Segment::kMostRanks) return std::nullopt;
  return "it is for " + std::to_string(shm::Segment::kMostRanks) + " ranks at most";
}

Fields introduction() {
  Fields words = {shared_memory_home()};
  for (std::string& field : shm::Process::own().fields()) words.push_back(std::move(field));
  return words;
}

// Together with the other ranks: all get the same answer. Nothing where they cannot share memory.
std::optional<Shared> share(const Membership& group, KeyValueStore& store) {
  const int rank = group.rank, size = group.size();
  if (unwanted(size)) return std::nullopt;
  const std::string purpose = "to share memory in group '" + group.name + "'";
  Shared shared;
  shared.area_bytes = shm::Segment::area_bytes(size, ShmCollectives::limit());
  shared.ring_bytes = shm::Mail::ring_bytes(size, ShmCollectives::limit());
  std::vector<std::string> homes;
  for (const auto& word :
       meet(store, "shm/homes", rank, size, group.timeout, purpose, encode_fields(introduction()))) {
    Fields fields = decode_fields(word);
    homes.push_back(fields.at(0));
    fields.erase(fields.begin());
    shared.processes.push_back(shm::Process::from(fields));
  }
  if (std::any_of(homes.begin(), homes.end(), [&](const auto& home) { return home != homes.front(); }))
    return std::nullopt;

  std::string obstacle;
  try {
    shared.memory = share_memory(store, "shm/segment", rank, size, shared.bytes(size), group.timeout);
  } catch (const Error& error) {
    obstacle = error.what();
  }
  // What holds for one neighbour holds for all: they are processes of one user.
  const auto& neighbour = shared.processes[static_cast<std::size_t>((rank + 1) % size)];
  const std::string no_copies = neighbour.obstacle().value_or("");
  for (const auto& word :
       meet(store, "shm/shared", rank, size, group.timeout, purpose, encode_fields({obstacle, no_copies}))) {
    const Fields said = decode_fields(word);
    if (!said.at(0).empty()) {
      if (rank == 0)
        log(LogLevel::kWarning, "group '" + group.name + "' goes without shared memory: " + said[0]);
      return std::nullopt;
    }
    if (!said.at(1).empty()) shared.processes.clear();
  }
  return shared;
}

}  // namespace

std::optional<std::string> ShmTransport::obstacle(int ranks) {
  if (auto why = unwanted(ranks)) return why;
  return shared_memory_obstacle();
}

std::unique_ptr<Links> ShmTransport::open(const Membership& group, KeyValueStore& store) {
  auto shared = share(group, store);
  if (!shared) return other_->open(group, store);
  auto other = other_->has_collectives() ? other_->open(group, store) : nullptr;
  return std::make_unique<ShmLinks>(std::move(*shared), group.rank, group.size(), std::move(other));
}

}  // namespace altorch
