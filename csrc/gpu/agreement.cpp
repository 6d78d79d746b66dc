// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/agreement.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/rounding.h"
#include "base/shape.h"
#include "runtime/fingerprint.h"

namespace altorch {
namespace {

constexpr std::size_t kPage = 4096;
std::size_t whole_pages(std::size_t bytes) { return rounded_up(bytes, kPage); }
auto ordered(std::uint64_t& word) { return std::atomic_ref(word); }

std::string of(std::int64_t bytes, std::int64_t tag) {
  return std::to_string(bytes) + " bytes" + (tag >= 0 ? " with tag " + std::to_string(tag) : "");
}

}  // namespace

// A writer clears `number`, writes the other fields, and stores `number` last. A reader loads
// `number` before and after the other fields. If it is the same both times, the fields belong to
// it.
struct Agreement::Call {
  std::uint64_t number, sequence, fingerprint, history;
};
struct Agreement::Message {
  std::uint64_t number, bytes, tag;
};

std::size_t Agreement::bytes(int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  return kPage + whole_pages(count * kKept * sizeof(Call)) +
         whole_pages(count * count * 2 * kKeptMessages * sizeof(Message));
}

Agreement::Agreement(std::shared_ptr<std::byte> memory, int rank, std::vector<int> ranks)
    : memory_(std::move(memory)),
      rank_(rank),
      ranks_(std::move(ranks)),
      place_of_rank_(static_cast<std::size_t>(ranks_.back()) + 1, kElsewhere),
      sent_(ranks_.size(), 0),
      received_(ranks_.size(), 0) {
  int place = 0;
  for (const int each : ranks_) place_of_rank_[static_cast<std::size_t>(each)] = place++;
}

int Agreement::place_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return index < place_of_rank_.size() ? place_of_rank_[index] : kElsewhere;
}

AbortNote& Agreement::note() const { return *reinterpret_cast<AbortNote*>(memory_.get()); }

Agreement::Call& Agreement::call(int place, std::uint64_t number) const {
  auto* all = reinterpret_cast<Call*>(memory_.get() + kPage);
  return all[static_cast<std::uint64_t>(place) * kKept + number % kKept];
}

Agreement::Message& Agreement::message(int from, int to, End end, std::uint64_t number) const {
  const std::size_t count = ranks_.size();
  auto* all = reinterpret_cast<Message*>(memory_.get() + kPage + whole_pages(count * kKept * sizeof(Call)));
  const auto pair = static_cast<std::size_t>(from) * count + static_cast<std::size_t>(to);
  return all[(2 * pair + (end == kReceiver ? 1 : 0)) * kKeptMessages + number % kKeptMessages];
}

void Agreement::check(const Operation& operation, bool even) {
  if (auto why = aborted()) throw Error(ErrorKind::kTransport, *why);
  if (operation.is_message()) {
    const bool sends = operation.kind == OpKind::kSend;
    const auto bytes = operation.count * static_cast<std::int64_t>(size_of(operation.dtype));
    if (operation.root != rank_)
      compare_message(operation, operation.root, sends ? kSender : kReceiver, bytes);
    return;
  }
  compare_call(operation, even);
  compare_blocks(operation);
}

void Agreement::compare_call(const Operation& operation, bool even) {
  const std::uint64_t number = ++calls_, mine = fingerprint(operation, even);
  Call& own = call(place_of(rank_), number);
  ordered(own.number).store(0);
  ordered(own.fingerprint).store(mine);
  ordered(own.history).store(operation.history);
  ordered(own.sequence).store(operation.sequence);
  ordered(own.number).store(number);
  for (const int peer : ranks_) {
    Call& other = call(place_of(peer), number);
    if (peer == rank_ || ordered(other.number).load() != number) continue;
    const std::uint64_t theirs = ordered(other.fingerprint).load(), past = ordered(other.history).load(),
                        sequence = ordered(other.sequence).load();
    if (ordered(other.number).load() != number) continue;
    if (theirs == mine && past == operation.history && sequence == operation.sequence) continue;
    std::string text = "rank " + std::to_string(peer) + " of the group called " +
                       describe_fingerprint(theirs) + ", rank " + std::to_string(rank_) + " " +
                       describe_fingerprint(mine);
    if (theirs == mine) {
      text = "the ranks agree about this call, but not about earlier ones: it is #" +
             std::to_string(sequence) + " of rank " + std::to_string(peer) + " of the group and #" +
             std::to_string(operation.sequence) + " of rank " + std::to_string(rank_) +
             ", or one of them refused a call that the other made";
    }
    disagree(text + "; all ranks must make the same calls in the same order");
  }
}

void Agreement::compare_blocks(const Operation& operation) {
  if (all_know_sizes(operation.kind)) return;
  const auto element = static_cast<std::int64_t>(size_of(operation.dtype));
  for (const int peer : ranks_) {
    if (peer == rank_) continue;
    if (const auto sent = count_for(operation, rank_, peer))
      compare_message(operation, peer, kSender, element * *sent);
    if (const auto taken = count_from(operation, rank_, peer))
      compare_message(operation, peer, kReceiver, element * *taken);
  }
}

void Agreement::compare_message(const Operation& operation, int peer, End mine, std::int64_t bytes) {
  if (place_of(peer) == kElsewhere) return;
  const bool sends = mine == kSender;
  const auto index = static_cast<std::size_t>(place_of(peer));
  const std::uint64_t number = sends ? ++sent_[index] : ++received_[index];
  const int from = sends ? rank_ : peer, to = sends ? peer : rank_;
  const std::int64_t tag = operation.is_message() ? operation.tag : -1;
  Message& own = message(place_of(from), place_of(to), mine, number);
  ordered(own.number).store(0);
  ordered(own.bytes).store(static_cast<std::uint64_t>(bytes));
  ordered(own.tag).store(static_cast<std::uint64_t>(tag));
  ordered(own.number).store(number);
  Message& other = message(place_of(from), place_of(to), sends ? kReceiver : kSender, number);
  if (ordered(other.number).load() != number) return;
  const auto other_bytes = static_cast<std::int64_t>(ordered(other.bytes).load());
  const auto other_tag = static_cast<std::int64_t>(ordered(other.tag).load());
  if (ordered(other.number).load() != number || (other_bytes == bytes && other_tag == tag)) return;
  disagree("rank " + std::to_string(from) + " of the group sends " +
           (sends ? of(bytes, tag) : of(other_bytes, other_tag)) + ", and rank " + std::to_string(to) +
           " takes " + (sends ? of(other_bytes, other_tag) : of(bytes, tag)) + " in " +
           name_of(operation.kind) +
           "; CUDA tensors between two ranks are matched in the order of the calls, and must agree on size "
           "and tag");
}

void Agreement::disagree(const std::string& text) {
  abort(text);
  throw Error(ErrorKind::kMismatch, text);
}

void Agreement::abort(const std::string& why) { note().write(why); }

std::optional<std::string> Agreement::aborted() const { return note().read(); }

}  // namespace altorch
