// SPDX-License-Identifier: BSD-3-Clause
#include "platform/single_copy.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/number.h"
#include "base/random_name.h"

namespace altorch::shm {
namespace {

// Drawn once in a process, and again in its child.
const std::uint64_t& secret() {
  static std::mutex mutex;
  static std::uint64_t number = 0;
  static pid_t drawn_by = 0;
  const std::lock_guard lock(mutex);
  if (drawn_by != getpid()) {
    number = std::stoull(random_name(16), nullptr, 16);
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
  return {number_from<long>(fields[0], "the id of its process"),
          number_from<std::uint64_t>(fields[1], "an address in its memory"),
          number_from<std::uint64_t>(fields[2], "the number of its process")};
}

std::optional<std::string> Process::unsupported_reason() const {
  std::uint64_t found = 0;
  iovec here{&found, sizeof found}, there{reinterpret_cast<void*>(address), sizeof found};
  if (process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0) != sizeof found)
    return "process_vm_readv of process " + std::to_string(pid) + ": " + std::strerror(errno);
  if (found != number) return "process " + std::to_string(pid) + " is another one here (a PID namespace?)";
  return std::nullopt;
}

// Its number is read with the bytes, so that those of a process that got its id since are never
// taken for its own.
bool Process::read(std::uint64_t from, void* to, std::size_t bytes) const {
  auto* begin = static_cast<std::byte*>(to);
  while (true) {
    std::uint64_t found = 0;
    const iovec here[] = {{begin, bytes}, {&found, sizeof found}};
    const iovec there[] = {{reinterpret_cast<void*>(from), bytes},
                           {reinterpret_cast<void*>(address), sizeof found}};
    const ssize_t got = process_vm_readv(static_cast<pid_t>(pid), here, 2, there, 2, 0);
    if (got < 0) return false;
    errno = got == 0 ? EFAULT : ESRCH;  // for the error that the caller throws
    if (static_cast<std::size_t>(got) == bytes + sizeof found) return found == number;
    if (got == 0 || static_cast<std::size_t>(got) >= bytes) return false;
    begin += got;
    from += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

// Its number is read first: a process that got its id in the microsecond between the two is not to
// be feared.
bool Process::write(std::uint64_t to, const void* from, std::size_t bytes) const {
  if (unsupported_reason()) return false;
  auto* begin = static_cast<std::byte*>(const_cast<void*>(from));  // which is only read
  while (bytes > 0) {
    const iovec here{begin, bytes}, there{reinterpret_cast<void*>(to), bytes};
    const ssize_t put = process_vm_writev(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    if (put <= 0) return false;
    begin += put;
    to += static_cast<std::uint64_t>(put);
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

Error unreadable(int rank) {
  return Error(ErrorKind::kTransport, "the memory of rank " + std::to_string(rank) +
                                          " of the group could not be read (" + std::strerror(errno) +
                                          "): its process has ended, or the tensor that it sends is gone");
}

}  // namespace altorch::shm
