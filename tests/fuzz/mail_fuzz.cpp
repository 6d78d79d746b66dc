// SPDX-License-Identifier: BSD-3-Clause
// Messages through shared memory, of a peer that writes anything anywhere there.
#include <array>
#include <vector>

#include "fuzz/memory.h"
#include "fuzz/target.h"
#include "transports/shm/channel.h"
#include "transports/shm/mail.h"

namespace altorch {
namespace {

constexpr int kMailRanks = 2, kSelf = 1;
constexpr std::size_t kRing = 1024, kLargest = kRing / 2 - sizeof(shm::Frame);

class Reader {
 public:
  explicit Reader(fuzz::Input& input)
      : input_(input),
        memory_(fuzz::hostile_memory(shm::Mail::bytes(kMailRanks, kRing), 0)),
        channel_(memory_, shm::Mail(memory_.get(), kSelf, kMailRanks, kRing), processes()) {}

  // False at the end.
  bool step() {
    switch (input_.up_to(5)) {
      case 0:
        put(input_.up_to(kMailRanks - 1));
        return true;
      case 1:
        fuzz::poke(memory_.get(), shm::Mail::bytes(kMailRanks, kRing), input_);
        return true;
      case 2:
        receive(input_.up_to(3));
        return true;
      case 3:
        channel_.cancel(std::span(&requests_[static_cast<std::size_t>(input_.up_to(3))], 1));
        return true;
      case 4:
        channel_.send(sent_.data(), input_.number<std::uint16_t>() % sent_.size(), 0, 0, requests_[4]);
        channel_.cancel(std::span(&requests_[4], 1));
        return true;
      default:
        return look();
    }
  }

 private:
  std::vector<shm::Process> processes() {
    return std::vector<shm::Process>(input_.up_to(1) == 1 ? kMailRanks : 0, shm::Process::own());
  }
  bool look() {
    std::optional<Error> error;
    return channel_.test(requests_, error) != State::kFailed && !input_.empty();
  }
  // In its place in the ring of a rank, with any field.
  void put(int from) {
    shm::Mail mail(memory_.get(), from, kMailRanks, kRing);
    shm::Frame frame{.tag = input_.up_to(1), .bytes = input_.number<std::uint64_t>()};
    frame.part = input_.number<std::uint16_t>() % (kLargest + 1);
    if (input_.up_to(1) == 1) frame.bytes = input_.number<std::uint16_t>();
    if (input_.up_to(1) == 1) frame.offer = 1, frame.address = input_.number<std::uint64_t>();
    frame.place = input_.up_to(255), frame.aborted = input_.up_to(7) == 7;
    mail.put(kSelf, frame, sent_.data());
  }
  void receive(int which) {
    const auto at = static_cast<std::size_t>(which);
    channel_.cancel(std::span(&requests_[at], 1));
    into_[at].resize(input_.number<std::uint16_t>() % 2048);
    channel_.receive(into_[at].data(), into_[at].size(), input_.up_to(2) - 1, input_.up_to(1), requests_[at]);
  }

  fuzz::Input& input_;
  const std::shared_ptr<std::byte> memory_;
  ShmChannel channel_;
  std::array<std::byte, 2048> sent_{};
  std::array<std::vector<std::byte>, 4> into_;
  std::array<Request, 5> requests_;
};

}  // namespace

FUZZ_TARGET(mail, 2000) {
  Reader reader(input);
  for (int steps = 0; steps < 200 && reader.step(); ++steps) {
  }
}

}  // namespace altorch
