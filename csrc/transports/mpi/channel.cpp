// SPDX-License-Identifier: BSD-3-Clause
#include "transports/mpi/channel.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "transports/mpi/mpi_entry.h"
#include "transports/mpi/request_extra.h"

namespace altorch {
namespace {

constexpr std::size_t kHeaderBytes = sizeof(LongHeader);

RequestExtra* extra_of(const Request& request) { return static_cast<RequestExtra*>(request.extra); }

void release(Request& request) {
  delete extra_of(request);
  request.extra = nullptr;
  request.handle = 0;
}

void fail(Request& request, Error error) {
  if (request.extra == nullptr) request.extra = new RequestExtra;
  extra_of(request)->failure = std::move(error);
}

std::string peer_name(int peer) { return peer < 0 ? "any rank" : "rank " + std::to_string(peer); }

Error is_dead_error(int peer) {
  return Error(ErrorKind::kTransport,
               peer_name(peer) + " of the group is dead, so this rank sends it nothing");
}

}  // namespace

MpiChannel::MpiChannel(Mpi& mpi, std::intptr_t communicator, int rank, int size, PeerDeaths deaths,
                       std::size_t piece)
    : mpi_(mpi),
      communicator_(communicator),
      rank_(rank),
      size_(size),
      deaths_(std::move(deaths)),
      piece_(piece),
      probes_any_source_(mpi.library().family != MpiFamily::kOpenMpi && mpi.has_several_nodes()),
      may_lock_up_(mpi.library().family == MpiFamily::kOpenMpi && mpi.library().major < 5) {}

void MpiChannel::send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) {
  request = Request{0, nullptr, bytes, peer, /*is_receive=*/false, request.exact};
  const AltorchMpiTable& table = mpi_.table();
  const int mpi_tag = static_cast<int>(tag);
  std::intptr_t handle = 0;
  if (bytes <= piece_) {
    int error;
    {
      const MpiEntry entry(mpi_);
      if (!entry) return fail(request, entry.refusal());
      const ForeignCall call = sending_to(peer);
      if (deaths_.include(peer)) return fail(request, is_dead_error(peer));
      error = table.isend(data, static_cast<int>(bytes), peer, mpi_tag, communicator_, &handle);
    }
    request.handle = static_cast<std::uintptr_t>(handle);
    if (error != 0) fail(request, Error(ErrorKind::kTransport, mpi_.describe("MPI_Isend", error)));
    return;
  }
  auto extra = std::make_unique<RequestExtra>();
  extra->is_long = true;
  extra->pieces_posted = true;
  extra->header.total = bytes;
  extra->header.pieces_tag = next_pieces_tag();
  extra->pieces.reserve(bytes / piece_ + 1);
  int error;
  {
    const MpiEntry entry(mpi_);
    if (!entry) return fail(request, entry.refusal());
    const ForeignCall call = sending_to(peer);
    if (deaths_.include(peer)) return fail(request, is_dead_error(peer));
    error = table.isend(&extra->header, kHeaderBytes, peer, mpi_tag, communicator_, &handle);
    for (std::size_t sent = 0; error == 0 && sent < bytes; sent += piece_) {
      std::intptr_t piece = 0;
      int length = static_cast<int>(std::min(piece_, bytes - sent));
      error = table.isend(static_cast<const char*>(data) + sent, length, peer,
                          static_cast<int>(extra->header.pieces_tag), communicator_, &piece);
      extra->pieces.push_back(piece);
    }
  }
  request.handle = static_cast<std::uintptr_t>(handle);
  request.extra = extra.release();
  if (error != 0) fail(request, Error(ErrorKind::kTransport, mpi_.describe("MPI_Isend", error)));
}

void MpiChannel::receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) {
  request = Request{0, nullptr, bytes, peer, /*is_receive=*/true, request.exact};
  if (!mpi_.usable()) return fail(request, mpi_.not_usable());
  if (peer < 0 && probes_any_source_) {
    auto* extra = new RequestExtra;
    extra->is_probing = true;
    extra->data = static_cast<char*>(data);
    extra->tag = static_cast<int>(tag);
    request.extra = extra;
    return;
  }
  int error;
  {
    const MpiEntry entry(mpi_);
    if (!entry) return fail(request, entry.refusal());
    const ForeignCall call(may_lock_up_);
    const auto lock = alone();
    error = post_receive(data, bytes, peer, static_cast<int>(tag), request);
  }
  if (error != 0) fail(request, Error(ErrorKind::kTransport, mpi_.describe("MPI_Irecv", error)));
}

int MpiChannel::post_receive(void* data, std::size_t bytes, int peer, int tag, Request& request) {
  void* target = data;
  std::size_t length = bytes;
  if (bytes > piece_) {
    auto* extra = new RequestExtra;
    extra->is_long = true;
    extra->data = static_cast<char*>(data);
    request.extra = extra;
    target = &extra->header;
    length = kHeaderBytes;
  } else if (bytes == kHeaderBytes) {  // it may get the header of a long message, and must look
    auto* extra = new RequestExtra;
    extra->data = static_cast<char*>(data);
    request.extra = extra;
  }
  std::intptr_t handle = 0;
  const int error = mpi_.table().irecv(target, static_cast<int>(length), peer, tag, communicator_, &handle);
  request.handle = static_cast<std::uintptr_t>(handle);
  return error;
}

ForeignCall MpiChannel::sending_to(int peer) const {
  if (may_lock_up_) return ForeignCall(true);
  if (!deaths_.watch()) return ForeignCall(false);
  return ForeignCall(true, {deaths_.watch(), deaths_.job_rank(peer)});
}

std::unique_lock<std::mutex> MpiChannel::alone() {
  const bool may_race = probes_any_source_ && mpi_.thread_level() == MpiThreadLevel::kMultiple;
  return may_race ? std::unique_lock(posting_) : std::unique_lock<std::mutex>();
}

// A tag repeats after as many messages as there are tags. Two such messages of one pair of ranks
// would still arrive in order.
std::int64_t MpiChannel::next_pieces_tag() {
  const std::int64_t first = max_tag() + 1;
  const auto tags = static_cast<std::uint64_t>(mpi_.max_tag() - max_tag());
  return first + static_cast<std::int64_t>(long_messages_++ % tags);
}

State MpiChannel::test(std::span<Request> requests, std::optional<Error>& error) {
  int pending = 0;
  std::optional<MpiEntry> entry;
  std::optional<ForeignCall> call;
  for (Request& request : requests) {
    if (request.handle == 0 && request.extra == nullptr) continue;
    if (!entry && !entry.emplace(mpi_)) {
      error = entry->refusal();
      return State::kFailed;
    }
    if (!call) call.emplace(may_lock_up_);
    State state = test_one(request, error);
    if (state == State::kFailed) return state;
    // Once some requests are pending, testing more of them brings little: MPI makes progress on all
    // of them in each.
    if (state == State::kPending && ++pending == kPollsPerTest) break;
  }
  return pending == 0 ? State::kDone : State::kPending;
}

State MpiChannel::test_one(Request& request, std::optional<Error>& error) {
  RequestExtra* extra = extra_of(request);
  if (extra != nullptr && extra->failure) {
    error = std::move(extra->failure);
    extra->failure.reset();
    if (request.handle == 0 && extra->pieces.empty()) release(request);
    return State::kFailed;
  }
  if (extra != nullptr && extra->is_probing) return test_probing(request, error);
  if (request.handle != 0) {
    AltorchMpiTest result = {};
    std::intptr_t handle = static_cast<std::intptr_t>(request.handle);
    int code = mpi_.table().test(&handle, &result);
    request.handle = static_cast<std::uintptr_t>(handle);
    if (code != 0) {
      const bool mismatch = result.truncated != 0 && request.is_receive;
      // MPI's own words name sizes too, and some of them the wrong way round.
      error = mismatch
                  ? Error(ErrorKind::kMismatch, "A message from " + peer_name(request.peer) +
                                                    " is larger than the " + std::to_string(request.bytes) +
                                                    " bytes that this rank expects: the ranks disagree about "
                                                    "the size or type of a tensor.")
                  : Error(ErrorKind::kTransport, mpi_.describe("MPI_Test", code));
      if (extra == nullptr || extra->pieces.empty()) release(request);
      return State::kFailed;
    }
    if (!result.done) return State::kPending;
    if (request.is_receive) {
      request.peer = result.source;
      const bool is_header = extra != nullptr && extra->is_long;
      if (!is_header || result.bytes != static_cast<std::int64_t>(kHeaderBytes)) {
        error = check_size(request, static_cast<std::size_t>(result.bytes));
        if (!error && is_header) {
          // The receiver allows less than it asked for, but the short message went into the header.
          error =
              Error(ErrorKind::kUnsupported, "A receive of more than 1 GiB cannot take a message of less.");
        }
      } else if (!extra->header.is_one()) {
        error = check_size(request, kHeaderBytes);
      }
      if (!error && !is_header && extra != nullptr && extra->data != nullptr) {
        LongHeader header;
        std::memcpy(&header, extra->data, sizeof header);
        if (header.is_one()) error = check_size(request, header.total);
      }
      if (error) {
        release(request);
        return State::kFailed;
      }
    }
  }
  if (extra == nullptr) return State::kDone;
  if (extra->is_long) return test_long(request, error);
  if (extra->copy_bytes > 0) std::memcpy(extra->copy_to, extra->bounce.get(), extra->copy_bytes);
  release(request);
  return State::kDone;
}

State MpiChannel::test_probing(Request& request, std::optional<Error>& error) {
  RequestExtra& extra = *extra_of(request);
  int found = 0, source = 0;
  auto lock = alone();
  int code = mpi_.table().iprobe_any(extra.tag, communicator_, &found, &source);
  if (code == 0 && !found) return State::kPending;
  const auto [data, tag] = std::pair(extra.data, extra.tag);
  release(request);
  request.peer = source;
  if (code == 0) code = post_receive(data, request.bytes, source, tag, request);
  if (lock) lock.unlock();
  if (code == 0) return test_one(request, error);
  error = Error(ErrorKind::kTransport, mpi_.describe("receive from any rank", code));
  return State::kFailed;
}

State MpiChannel::test_long(Request& request, std::optional<Error>& error) {
  RequestExtra& extra = *extra_of(request);
  if (!extra.pieces_posted) {
    error = check_size(request, extra.header.total);
    if (error) {
      release(request);
      return State::kFailed;
    }
    extra.pieces_posted = true;
    for (std::size_t received = 0; received < extra.header.total; received += piece_) {
      std::intptr_t piece = 0;
      int length = static_cast<int>(std::min<std::size_t>(piece_, extra.header.total - received));
      int code = mpi_.table().irecv(extra.data + received, length, request.peer,
                                    static_cast<int>(extra.header.pieces_tag), communicator_, &piece);
      if (code != 0) {
        error = Error(ErrorKind::kTransport, mpi_.describe("MPI_Irecv", code));
        return State::kFailed;
      }
      extra.pieces.push_back(piece);
    }
  }
  for (std::intptr_t& piece : extra.pieces) {
    if (piece == 0) continue;
    AltorchMpiTest result = {};
    int code = mpi_.table().test(&piece, &result);
    if (code != 0) {
      error = Error(ErrorKind::kTransport, mpi_.describe("MPI_Test", code));
      return State::kFailed;
    }
    if (!result.done) return State::kPending;
  }
  release(request);
  return State::kDone;
}

std::optional<Error> MpiChannel::check_size(const Request& request, std::size_t received) const {
  return wrong_size(received, request.bytes, request.exact, peer_name(request.peer));
}

bool MpiChannel::cancel(std::span<Request> requests) {
  // Give matched messages a moment to finish: a receive that has met its sender cannot be
  // withdrawn.
  constexpr int kTries = 1000;
  bool all_free = true;
  const MpiEntry entry(mpi_);
  if (!entry) {
    for (const Request& request : requests)
      all_free = all_free && request.handle == 0 && request.extra == nullptr;
    return all_free;
  }
  auto withdraw = [&](std::intptr_t& handle, bool is_receive) {
    AltorchMpiTest result = {};
    if (handle == 0) return;
    const auto test = [&] {
      const ForeignCall call(may_lock_up_);
      mpi_.table().test(&handle, &result);
    };
    test();
    if (handle != 0 && is_receive) mpi_.table().cancel(&handle);
    for (int i = 0; handle != 0 && i < kTries; ++i) test();
  };
  for (Request& request : requests) {
    RequestExtra* extra = extra_of(request);
    std::intptr_t handle = static_cast<std::intptr_t>(request.handle);
    withdraw(handle, request.is_receive);
    request.handle = static_cast<std::uintptr_t>(handle);
    bool is_free = handle == 0;  // also where nothing was posted yet
    if (extra != nullptr) {
      for (std::intptr_t& piece : extra->pieces) {
        withdraw(piece, request.is_receive);
        is_free = is_free && piece == 0;
      }
    }
    if (is_free) release(request);
    all_free = all_free && is_free;
  }
  return all_free;
}

}  // namespace altorch
