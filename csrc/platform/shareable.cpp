// SPDX-License-Identifier: BSD-3-Clause
#include "platform/shareable.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "base/error.h"

namespace altorch {
namespace {

struct Shareables {
  struct Entry {
    std::size_t bytes;
    int file;
  };
  std::mutex mutex;
  std::map<std::uintptr_t, Entry> entries;  // by address
};
// Never destroyed: tensors may outlive everything.
Shareables& shareables() {
  static auto* made = new Shareables();
  return *made;
}

[[noreturn]] void fail_to_share(const std::string& what) {
  throw Error(ErrorKind::kTransport, "memory for windows: " + what + " failed: " + std::strerror(errno));
}

std::byte* map(const Descriptor& file, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
  if (memory == MAP_FAILED) fail_to_share("mapping " + std::to_string(bytes) + " bytes");
  return static_cast<std::byte*>(memory);
}

// The size of what it was; 0 where it is not known.
std::size_t forget(const void* memory) {
  Shareables::Entry entry{};
  {
    Shareables& known = shareables();
    const std::lock_guard lock(known.mutex);
    const auto found = known.entries.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == known.entries.end()) return 0;
    entry = found->second;
    known.entries.erase(found);
  }
  ::close(entry.file);
  return entry.bytes;
}

void release(std::byte* memory) { munmap(memory, forget(memory)); }

}  // namespace

std::shared_ptr<std::byte> allocate_shareable(std::size_t bytes) {
  bytes = bytes > 0 ? bytes : 1;
  Descriptor file(memfd_create("altorch window", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (*file < 0) fail_to_share("memfd_create");
  // posix_fallocate() would take the pages at once, and fail instead of a first touch; nor do other
  // allocators.
  if (ftruncate(*file, static_cast<off_t>(bytes)) != 0)
    fail_to_share("taking " + std::to_string(bytes) + " bytes");
  fcntl(*file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);  // no peer can pull it away
  std::byte* memory = map(file, bytes);
  remember_shareable(memory, bytes, std::move(file));
  return {memory, release};
}

void remember_shareable(const void* memory, std::size_t bytes, Descriptor descriptor) {
  Shareables& known = shareables();
  const std::lock_guard lock(known.mutex);
  known.entries[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, descriptor.release()};
}

void forget_shareable(const void* memory) { forget(memory); }

std::optional<Shareable> find_shareable(const void* block, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  Shareables& known = shareables();
  const std::lock_guard lock(known.mutex);
  auto found = known.entries.upper_bound(address);
  if (found == known.entries.begin()) return std::nullopt;
  --found;
  const std::size_t offset = address - found->first;
  if (offset + bytes > found->second.bytes) return std::nullopt;
  return Shareable{Descriptor(fcntl(found->second.file, F_DUPFD_CLOEXEC, 0)), found->second.bytes, offset};
}

std::shared_ptr<std::byte> map_shareable(const Descriptor& descriptor, std::size_t bytes) {
  struct stat status {};
  if (fstat(*descriptor, &status) != 0) fail_to_share("looking at what a peer has sent");
  if (static_cast<std::size_t>(status.st_size) < bytes)
    throw Error(ErrorKind::kTransport, "memory for windows: a peer has sent less than it said");
  return {map(descriptor, bytes), [bytes](std::byte* memory) { munmap(memory, bytes); }};
}

}  // namespace altorch
