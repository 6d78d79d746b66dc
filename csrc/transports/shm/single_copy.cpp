#include "transports/shm/single_copy.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "common/error.h"

namespace altorch::shm {
namespace {

// Drawn once in a process, and again in its child.
const std::uint64_t& secret() {
  static std::uint64_t number = 0;
  static pid_t drawn_by = 0;
  if (drawn_by != getpid()) {
    std::random_device random;
    number = std::uint64_t{random()} << 32 | random();
    drawn_by = getpid();
  }
  return number;
}

}  // namespace

Process Process::own() { return {getpid(), reinterpret_cast<std::uint64_t>(&secret()), secret()}; }

Fields Process::fields() const {
  return {std::to_string(pid), std::to_string(address), std::to_string(number)};
}

Process Process::from(const Fields& fields) {
  if (fields.size() != kFields)
    throw Error(ErrorKind::kInternal, "a rank said something else of its process");
  return {std::stol(fields[0]), std::stoull(fields[1]), std::stoull(fields[2])};
}

std::optional<std::string> Process::obstacle() const {
  std::uint64_t found = 0;
  errno = 0;
  if (!read(address, &found, sizeof found))
    return "process_vm_readv of process " + std::to_string(pid) + ": " + std::strerror(errno);
  if (found != number) return "process " + std::to_string(pid) + " is another one here (a PID namespace?)";
  return std::nullopt;
}

bool Process::read(std::uint64_t from, void* to, std::size_t bytes) const {
  auto* begin = static_cast<std::byte*>(to);
  while (bytes > 0) {
    iovec here{begin, bytes}, there{reinterpret_cast<void*>(from), bytes};
    const ssize_t got = process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    if (got <= 0) return false;
    begin += got;
    from += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace altorch::shm
