// SPDX-License-Identifier: BSD-3-Clause
// What ranks say of their processes, their GPUs and the memory of their windows.
#include "fuzz/target.h"
#include "gpu/nccl/nccl_comm.h"
#include "health/process_id.h"
#include "select/world.h"
#include "windows/handle.h"

namespace altorch {
namespace {

void read_handles(const std::string& text) {
  try {
    const HostHandle handle = HostHandle::from(text);
    fuzz::require(HostHandle::from(handle.text()).text() == handle.text(), "a handle survives");
  } catch (const Error&) {
  }
  const DeviceHandle handle = DeviceHandle::from(text);
  fuzz::require(DeviceHandle::from(handle.text()).text() == handle.text(), "a handle survives");
}

void read_registered(const Fields& words) {
  const Fields fields = registered_fields(registered_from(words[0], words[1]));
  fuzz::require(registered_fields(registered_from(fields[0], fields[1])) == fields,
                "what is registered survives");
}

void read_world(const Fields& words) {
  const GpuPeerInfo peers[] = {GpuPeerInfo::from(words[0]), GpuPeerInfo::from(words[1])};
  fuzz::require(GpuPeerInfo::from(peers[0].text()).text() == peers[0].text(), "a GPU's words survive");
  const World world = World::of(peers);
  fuzz::require(world.ranks == 2 && world.waiting_blocks >= 0, "a world is one");
}

}  // namespace

FUZZ_TARGET(peer_words, 3000) {
  const int kind = input.up_to(5);
  if (kind == 0) return read_handles(input.rest());
  if (kind == 1) return static_cast<void>(shm::Process::from(decode_fields(input.rest())));
  if (kind == 2) return static_cast<void>(nccl::unique_id_from(input.rest()));
  const Fields two = {input.piece().value_or(""), input.piece().value_or("")};
  if (kind == 3) return read_registered(two);
  if (kind == 4) return read_world(two);
  ProcessId::from(two[0], two[1]).boot();
}

}  // namespace altorch
