// SPDX-License-Identifier: BSD-3-Clause
// Makes a power of two out of any number of ranks, for the algorithms that pair ranks by the bits
// of their number.
//
// With p = 2^k + extra ranks, the first 2 * extra ranks form pairs: the even one, the guest, hands
// its data to the odd one, its host, sits out, and is told the result. What remains is numbered
// 0..2^k-1 in rank order, so that neighbours stand for neighbouring ranks and the lower number
// always for the lower ranks.
#pragma once

#include <bit>

#include "collectives/schedule_builder.h"

namespace altorch {

class Fold {
 public:
  explicit Fold(int size)
      : members_(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))), extra_(size - members_) {}

  // The power of two.
  int members() const { return members_; }
  bool is_guest(int rank) const { return rank < 2 * extra_ && rank % 2 == 0; }
  bool is_host(int rank) const { return rank < 2 * extra_ && rank % 2 == 1; }
  // The number of a rank that is not a guest, and back.
  int member_of(int rank) const { return rank < 2 * extra_ ? rank / 2 : rank - extra_; }
  int rank_of(int member) const { return member < extra_ ? 2 * member + 1 : member + extra_; }
  // The first of the ranks that a member stands for; members a..b-1 stand for ranks
  // first_rank(a)..first_rank(b)-1.
  int first_rank(int member) const { return member < extra_ ? 2 * member : member + extra_; }

 private:
  int members_, extra_;
};

// The host adds its guest's `vector` to its own; the guest's schedule goes on with unfold_vector.
// a + n b + n g, where there are guests.
inline void fold_vector(ScheduleBuilder& builder, const Fold& fold, int rank, const Slice& vector,
                        const Slice& arrived) {
  if (fold.is_guest(rank)) builder.send(rank + 1, vector);
  if (fold.is_host(rank)) {
    builder.receive(rank - 1, arrived);
    builder.end_round();
    builder.reduce(arrived, vector, vector);
  }
  builder.end_round();
}

// The guest gets the result from its host. a + n b.
inline void unfold_vector(ScheduleBuilder& builder, const Fold& fold, int rank, const Slice& vector) {
  if (fold.is_guest(rank)) builder.receive(rank + 1, vector);
  if (fold.is_host(rank)) builder.send(rank - 1, vector);
  builder.end_round();
}

}  // namespace altorch
