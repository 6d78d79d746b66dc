// SPDX-License-Identifier: BSD-3-Clause
// What a rank is given as shared memory: the name of a socket, in the store, and what comes through
// it.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <thread>

#include "fuzz/hostile_store.h"
#include "rendezvous/shared_memory.h"
#include "support/map_store.h"

namespace altorch {
namespace {

constexpr std::size_t kBytes = 8192;

// What the first rank sends; descriptors are those of an anonymous file.
struct Parcel {
  int bytes, descriptors, type;
  std::size_t file_bytes;
};

class FirstRank {
 public:
  explicit FirstRank(const Parcel& parcel) : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socklen_t length = sizeof(sa_family_t);
    bind(*listener_, reinterpret_cast<sockaddr*>(&address), length);
    listen(*listener_, 1);
    length = sizeof address;
    getsockname(*listener_, reinterpret_cast<sockaddr*>(&address), &length);
    name_.assign(address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
    thread_ = std::thread([this, parcel] { hand_out(parcel); });
  }
  ~FirstRank() {
    shutdown(*listener_, SHUT_RDWR);  // wakes it, where no peer has come
    thread_.join();
  }
  FirstRank(const FirstRank&) = delete;
  const std::string& name() const { return name_; }

 private:
  void hand_out(const Parcel& parcel) {
    const Descriptor peer(accept4(*listener_, nullptr, nullptr, SOCK_CLOEXEC));
    const Descriptor file(memfd_create("fuzzed", MFD_CLOEXEC));
    if (*peer < 0 || ftruncate(*file, static_cast<off_t>(parcel.file_bytes)) != 0) return;
    char text[2] = {};
    iovec part{text, static_cast<std::size_t>(parcel.bytes)};
    alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part, message.msg_iovlen = 1;
    if (parcel.descriptors > 0) {
      const std::size_t bytes = static_cast<std::size_t>(parcel.descriptors) * sizeof(int);
      message.msg_control = control, message.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET, header->cmsg_type = parcel.type, header->cmsg_len = CMSG_LEN(bytes);
      for (int i = 0; i < parcel.descriptors; ++i) {
        const int number = *file;
        std::memcpy(CMSG_DATA(header) + static_cast<std::size_t>(i) * sizeof number, &number, sizeof number);
      }
    }
    sendmsg(*peer, &message, MSG_NOSIGNAL);
  }

  const Descriptor listener_;
  std::string name_;
  std::thread thread_;
};

void fetch(KeyValueStore& store) {
  const auto memory = share_memory(store, "key", 1, 2, kBytes, std::chrono::milliseconds(200));
  memory.get()[kBytes - 1] = std::byte{1};
}

}  // namespace

FUZZ_TARGET(shared_memory, 200) {
  if (input.up_to(1) == 0) {
    fuzz::HostileStore store(input);
    return fetch(store);
  }
  const Parcel parcel{input.up_to(2), input.up_to(3), input.up_to(3) == 3 ? 77 : SCM_RIGHTS,
                      input.number<std::uint16_t>()};
  FirstRank first(parcel);
  MapStore store;
  store.set("key", first.name());
  fetch(store);
}

}  // namespace altorch
