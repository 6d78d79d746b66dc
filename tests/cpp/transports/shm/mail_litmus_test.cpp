// SPDX-License-Identifier: BSD-3-Clause
// The order of memory in a Mail's rings: a frame that is seen is whole, and stays until it is
// dropped.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "transports/shm/litmus.h"
#include "transports/shm/mail.h"
#include "transports/shm/shm_ranks.h"

namespace altorch::shm {
namespace {

using litmus::draw;
using litmus::stamp;

constexpr std::size_t kRing = 1 << 10;  // two frames or a few: full, empty and coming round all the time

class Writer {
 public:
  Writer(Mail& mail, litmus::Race& race) : mail_(mail), race_(race) {}

  // Its next messages to `peer` and from it, as far as there is room, and mail. False where there
  // was neither.
  bool exchange(int peer) {
    auto& [sent, got, all_sent, all_got] = done_.at(static_cast<std::size_t>(peer));
    const std::uint64_t before = sent + got;
    while (!all_sent) {
      const bool last = !race_.goes_on(sent + 1);
      if (!put(peer, sent, last)) break;
      ++sent;
      all_sent = last;
    }
    while (const auto received = mail_.oldest(peer)) {
      check(*received, peer, got);
      race_.expect(mail_.oldest(peer)->data == received->data, "the oldest is another now", got);
      litmus::stumble(got, static_cast<std::uint64_t>(mail_.rank()));
      check(*mail_.oldest(peer), peer, got++);  // after the peer has had time to write over it
      all_got = received->frame.aborted != 0;
      mail_.drop(peer, received->frame);
    }
    return sent + got > before;
  }
  bool is_through_with(int peer) const {
    const Done& done = done_.at(static_cast<std::size_t>(peer));
    return done.all_sent && done.all_got;
  }

 private:
  struct Done {
    std::uint64_t sent = 0, got = 0;
    bool all_sent = false, all_got = false;
  };

  std::uint64_t words_of(std::uint64_t round) const { return draw(round, 1) % (mail_.largest() / 8 + 1); }
  bool put(int peer, std::uint64_t round, bool last) {
    const std::uint64_t words = words_of(round);
    for (std::uint64_t i = 0; i < words; ++i) out_[i] = stamp(mail_.rank(), round, i);
    const Frame frame{.tag = static_cast<std::int64_t>(round),
                      .bytes = words * 8,
                      .part = words * 8,
                      .address = draw(round, 2),
                      .aborted = last ? 1u : 0u};
    return mail_.put(peer, frame, out_);
  }
  void check(const Mail::Received& received, int peer, std::uint64_t round) {
    const Frame& frame = received.frame;
    race_.expect(frame.tag == static_cast<std::int64_t>(round), "a frame is another", round);
    race_.expect(frame.part == words_of(round) * 8 && frame.address == draw(round, 2), "a frame is torn",
                 round);
    const auto* const data = reinterpret_cast<const std::uint64_t*>(received.data);
    for (std::uint64_t i = words_of(round); i-- > 0;)
      race_.expect(data[i] == stamp(peer, round, i), "a message is another", round);
  }

  Mail& mail_;
  litmus::Race& race_;
  std::uint64_t out_[kRing / 16];
  std::vector<Done> done_{static_cast<std::size_t>(mail_.size())};
};

TEST(ShmLitmus, AFrameIsWholeUntilItIsDropped) {
  for (const int size : {2, 3, 4}) {
    litmus::Race race;
    const auto memory = plain_memory(Mail::bytes(size, kRing));
    const auto errors = on_threads(size, [&](int rank) {
      Mail mail(memory.get(), rank, size, kRing);
      Writer writer(mail, race);
      for (bool under_way = true; under_way;) {
        race.until([&] {
          bool moved = under_way = false;
          for (int peer = 0; peer < size; ++peer) {
            if (peer == rank || writer.is_through_with(peer)) continue;
            moved |= writer.exchange(peer);
            under_way = true;
          }
          return moved || !under_way;
        });
      }
    });
    EXPECT_EQ(errors, all_good(size));
  }
}

}  // namespace
}  // namespace altorch::shm
