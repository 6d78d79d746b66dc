// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/probes.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>

namespace altorch {
namespace {

std::string namespace_id(const char* kind) {
  char target[PATH_MAX];
  const std::string path = std::string("/proc/self/ns/") + kind;
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : "none";
}

// A value that no other process has at the same address, so that a wrong process is not taken for
// the right one.
const std::uint64_t* probe_word() {
  static const std::uint64_t* word = [] {
    std::random_device random;
    return new std::uint64_t((static_cast<std::uint64_t>(random()) << 32) | random() | 1);
  }();
  return word;
}

bool same_address(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  if (a->sa_family == AF_INET6) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                       &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
  }
  return false;
}

RouteToHost interface_with(const sockaddr* local, socklen_t length) {
  RouteToHost route;
  char text[NI_MAXHOST] = "";
  if (getnameinfo(local, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) route.address = text;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return route;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (!same_address(entry->ifa_addr, local)) continue;
    route.interface = entry->ifa_name;
    route.is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    break;
  }
  freeifaddrs(all);
  // 127.0.1.1 and its like belong to the loopback interface without being listed.
  if (route.interface.empty() && route.address.starts_with("127.")) route = {"lo", route.address, true};
  return route;
}

}  // namespace

std::string same_node_key() {
  std::string boot_id = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat shared = {};
  const bool has_shared = stat("/dev/shm", &shared) == 0;
  std::string key =
      boot_id + "/" + namespace_id("pid") + "/" + namespace_id("ipc") +
      "/shm:" + (has_shared ? std::to_string(shared.st_dev) + ":" + std::to_string(shared.st_ino) : "none") +
      "/uid:" + std::to_string(geteuid());
  if (const char* extra = std::getenv("ALTORCH_TEST_NODE")) key += std::string("/") + extra;
  return key;
}

std::uint64_t free_shared_memory() {
  struct statvfs info = {};
  if (statvfs("/dev/shm", &info) != 0) return 0;
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

std::string mpi_unsupported_reason() {
  // The largest file in /dev/shm of a rank: 4.3 MB with UCX.
  constexpr rlim_t kLongestFile = 6'000'000;
  if (rlimit files{}; getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < kLongestFile)
    return "files may have " + std::to_string(files.rlim_cur) +
           " bytes (ulimit -f), and MPI needs files of " + std::to_string(kLongestFile) +
           " bytes in /dev/shm; raise the limit";
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0 && errno != EINVAL)  // EINVAL: there are more cores
    return std::string("sched_getaffinity is refused (") + std::strerror(errno) +
           "), and MPI does not start without it; allow it in the sandbox (seccomp)";
  if (access("/proc/sys/kernel/random/boot_id", R_OK) != 0)
    return std::string("/proc/sys/kernel/random/boot_id cannot be read (") + std::strerror(errno) +
           "), and MPI does not start without it; mount /proc";
  return "";
}

MemoryProbe own_memory_probe() {
  const std::uint64_t* word = probe_word();
  return {getpid(), reinterpret_cast<std::uint64_t>(word), *word};
}

bool can_read_memory(const MemoryProbe& probe) {
  std::uint64_t value = 0;
  iovec local = {&value, sizeof(value)};
  iovec remote = {reinterpret_cast<void*>(probe.address), sizeof(value)};
  return process_vm_readv(probe.process, &local, 1, &remote, 1, 0) == sizeof(value) && value == probe.value;
}

RouteToHost route_to(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (host.empty() || getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const int fd = socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage local = {};
    socklen_t length = sizeof(local);
    // Connecting a datagram socket sends nothing: the kernel only chooses the route.
    const bool ok = connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 &&
                    getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
    close(fd);
    if (!ok) continue;
    RouteToHost route = interface_with(reinterpret_cast<sockaddr*>(&local), length);
    if (!route.interface.empty()) return route;
  }
  return {};
}

}  // namespace altorch
