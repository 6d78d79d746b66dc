// SPDX-License-Identifier: BSD-3-Clause
// Messages over one MPI communicator.
//
// A message of up to kPiece bytes is one MPI message. A larger one is a header with its length,
// which has the tag of the message, and pieces, because MPI counts are ints. The receiver posts its
// receives of the pieces when it has the header. The pieces have a tag of their own, from the upper
// half of MPI's tags, so that they match no receive of another message that was posted before.
//
// A receive from any source is MPI's own, except with MPICH on several nodes: MPICH then posts it
// to shared memory and to the network, and 5.0 sometimes loses the message when it withdraws one of
// the two. There the channel probes instead, so that such a receive takes its message when it is
// tested, after those that name their source.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "platform/foreign_call.h"
#include "transports/channel.h"
#include "transports/mpi/mpi.h"

namespace altorch {

class MpiChannel : public Channel {
 public:
  static constexpr std::size_t kPiece = std::size_t{1} << 30;

  // `deaths`: such a rank is sent nothing, because MPICH's MPI_Isend to it
  // crashes over ucx and may never return over ofi. A rank whose death is not known yet is sent to.
  // `piece` is for tests, which need not move gigabytes to cut a message.
  MpiChannel(Mpi& mpi, std::intptr_t communicator, int rank, int size, PeerDeaths deaths = {},
             std::size_t piece = kPiece);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::int64_t max_tag() const override { return mpi_.max_tag() >> 1; }
  void send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override;
  void receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override;
  State test(std::span<Request> requests, std::optional<Error>& error) override;
  bool cancel(std::span<Request> requests) override;

 private:
  State test_one(Request& request, std::optional<Error>& error);
  State test_probing(Request& request, std::optional<Error>& error);
  State test_long(Request& request, std::optional<Error>& error);
  int post_receive(void* data, std::size_t bytes, int peer, int tag, Request& request);
  std::int64_t next_pieces_tag();
  // MPI_Iprobe and the MPI_Irecv behind it must meet the same message. Where several threads call
  // MPI at the same time, no other receive may be posted in between.
  std::unique_lock<std::mutex> alone();
  // MPI_Isend may wait for a peer that lives, but not for a dead one (health/stuck_calls.h).
  ForeignCall sending_to(int peer) const;
  std::optional<Error> check_size(const Request& request, std::size_t received) const;

  Mpi& mpi_;
  std::intptr_t communicator_;
  int rank_;
  int size_;
  const PeerDeaths deaths_;
  std::size_t piece_;
  std::atomic<std::uint64_t> long_messages_ = 0;  // sent
  std::mutex posting_;
  bool probes_any_source_;
  bool may_lock_up_;  // in any call, once a rank is dead; see health/stuck_calls.h
};

}  // namespace altorch
