// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/shared_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "base/number.h"
#include "platform/host_namespace.h"
#include "platform/unix_socket.h"
#include "rendezvous/retrying_store.h"

namespace altorch {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::chrono::milliseconds left_until(SteadyClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::kTransport, "shared memory: " + what + " failed: " + std::strerror(errno));
}

// What a rank says that cannot have its part, so that the others do not wait for it.
std::string refusal_key(const std::string& key) { return key + "/refused"; }

std::optional<std::string> refusal(KeyValueStore& store, const std::string& key) {
  return try_request([&] { return store.try_get(refusal_key(key)); });
}

void wait_until_readable(int socket, KeyValueStore& store, const std::string& key,
                         SteadyClock::time_point deadline, const char* whom) {
  constexpr int kBetweenLooks = 100;  // ms
  for (int looks = 1; SteadyClock::now() < deadline; ++looks) {
    pollfd entry{socket, POLLIN, 0};
    if (poll(&entry, 1, kBetweenLooks) == 1) return;
    store.check_peers();
    if (looks > 10 && looks % 10 != 0) continue;  // after the first second only once a second
    if (const auto refused = refusal(store, key)) throw Error(ErrorKind::kTransport, *refused);
  }
  throw Error(ErrorKind::kTimeout, std::string("shared memory: ") + whom + " did not come in time");
}

// A descriptor travels beside one byte.
struct Parcel {
  char byte = 1;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  Parcel() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
};

void send_descriptor(int socket, int descriptor) {
  Parcel parcel;
  cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  if (sendmsg(socket, &parcel.message, MSG_NOSIGNAL) != 1) fail("handing it over");
}

// One, and nothing else; of what comes beside it nothing is kept.
int receive_descriptor(int socket) {
  Parcel parcel;
  const ssize_t got = recvmsg(socket, &parcel.message, MSG_CMSG_CLOEXEC);
  if (got < 0) fail("receiving it");
  Descriptor only;
  std::size_t count = 0;
  const cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
    count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < count; ++i) {
    int descriptor;
    std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof descriptor, sizeof descriptor);
    only = Descriptor(descriptor);
  }
  if (got != 1 || count != 1) {
    errno = EPROTO;
    fail("receiving it");
  }
  return only.release();
}

bool is_of_this_user(int socket) {
  const auto peer = peer_of(socket);
  return peer && is_same_user(*peer);
}

// The kernel chooses the name. connect() to a full queue waits without a deadline, so the queue has
// room for all ranks of a node.
Descriptor open_listener(std::string& name) {
  Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (*listener < 0) fail("a socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof(sa_family_t);
  if (bind(*listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(*listener, SOMAXCONN) != 0)
    fail("listening");
  length = sizeof address;
  if (getsockname(*listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) fail("naming the socket");
  name.assign(address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
  return listener;
}

int fetch(const std::string& name, KeyValueStore& store, const std::string& key,
          SteadyClock::time_point deadline) {
  if (name.empty()) {  // the rank that hands it out has failed
    throw Error(ErrorKind::kTransport, refusal(store, key).value_or("shared memory: it has none"));
  }
  if (name.size() > AbstractAddress::kLongest) {
    throw Error(ErrorKind::kTransport,
                "shared memory: another rank wrote " + excerpt(name) + " as the name of a socket");
  }
  const Descriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const AbstractAddress address(name);
  if (connect(*connection, address.get(), address.bytes()) != 0) fail("reaching the other rank");
  if (!is_of_this_user(*connection)) {
    throw Error(ErrorKind::kTransport, "shared memory: the other rank belongs to another user");
  }
  wait_until_readable(*connection, store, key, deadline, "the other rank's memory");
  return receive_descriptor(*connection);
}

// `place`: the key of the socket's name.
void hand_out(int file, KeyValueStore& store, const std::string& place, const std::string& key, int size,
              SteadyClock::time_point deadline) {
  std::string name;
  const Descriptor listener = open_listener(name);
  post_request([&] { store.set(place, name); });
  for (int served = 1; served < size;) {
    wait_until_readable(*listener, store, key, deadline, "another rank of this node");
    const Descriptor peer(accept4(*listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (*peer < 0 || !is_of_this_user(*peer)) continue;
    send_descriptor(*peer, file);
    ++served;
  }
}

}  // namespace

std::string shared_memory_node() { return host_namespace("net") + "/" + std::to_string(geteuid()); }

namespace {

std::shared_ptr<std::byte> map(int file, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) fail("mapping " + std::to_string(bytes >> 20) + " MiB");
  return {static_cast<std::byte*>(memory), [bytes](std::byte* segment) { munmap(segment, bytes); }};
}

int make_file() { return memfd_create("altorch", MFD_CLOEXEC | MFD_ALLOW_SEALING); }

std::shared_ptr<std::byte> make_and_hand_out(KeyValueStore& store, const std::string& key, int size,
                                             std::size_t bytes, SteadyClock::time_point deadline) {
  const Descriptor file(make_file());
  if (*file < 0) fail("memfd_create");
  if (ftruncate(*file, static_cast<off_t>(bytes)) != 0)
    fail("taking " + std::to_string(bytes >> 20) + " MiB");
  fcntl(*file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);  // no process can truncate it
  auto memory = map(*file, bytes);
  hand_out(*file, store, key, key, size, deadline);
  return memory;
}

}  // namespace

std::optional<std::string> shared_memory_unsupported_reason() {
  const Descriptor file(make_file());
  if (*file >= 0) return std::nullopt;
  return std::string("the system gives none: memfd_create: ") + std::strerror(errno);
}

std::shared_ptr<std::byte> share_memory(KeyValueStore& store, const std::string& key, int rank, int size,
                                        std::size_t bytes, std::chrono::milliseconds timeout) {
  const auto deadline = SteadyClock::now() + timeout;
  try {
    if (rank == 0) return make_and_hand_out(store, key, size, bytes, deadline);
    const Descriptor file(fetch(store.get(key, timeout), store, key, deadline));
    struct stat status {};
    if (fstat(*file, &status) != 0) fail("looking at it");
    if (status.st_size < static_cast<off_t>(bytes)) {  // what is missing could not be touched
      throw Error(ErrorKind::kTransport, "shared memory: the other rank has sent " +
                                             std::to_string(status.st_size) + " bytes of " +
                                             std::to_string(bytes));
    }
    return map(*file, bytes);
  } catch (const Error& error) {
    post_request([&] { store.set(refusal_key(key), error.what()); });
    if (rank == 0) post_request([&] { store.set(key, ""); });
    throw;
  }
}

// One rank after another hands out its own.
std::vector<Descriptor> exchange_descriptors(KeyValueStore& store, const std::string& key, int rank, int size,
                                             const Descriptor& own, std::chrono::milliseconds timeout) {
  const auto deadline = SteadyClock::now() + timeout;
  std::vector<Descriptor> all;
  for (int from = 0; from < size; ++from) {
    const std::string place = key + "/" + std::to_string(from);
    try {
      if (from == rank) hand_out(*own, store, place, key, size, deadline);
      all.emplace_back(from == rank ? -1
                                    : fetch(store.get(place, left_until(deadline)), store, key, deadline));
    } catch (const Error& error) {
      post_request([&] { store.set(refusal_key(key), error.what()); });
      if (from <= rank) post_request([&] { store.set(key + "/" + std::to_string(rank), ""); });
      throw;
    }
  }
  return all;
}

}  // namespace altorch
