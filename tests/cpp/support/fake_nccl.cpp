// SPDX-License-Identifier: BSD-3-Clause
#include "support/fake_nccl.h"

#include "base/error.h"
#include "base/leak_intentionally.h"
#include "support/fake_nccl_parts.h"

namespace altorch {

using fake_nccl::State;

namespace {

thread_local bool hidden_here = false;

const nccl::Library& find() {
  if (hidden_here) throw Error(ErrorKind::kUnsupported, "NCCL cannot be loaded: the fake is hidden");
  return fake_nccl::state().library;
}

}  // namespace

FakeNccl::FakeNccl(int version) : state_(new State) {
  record_leak(state_);
  state_->library = {fake_nccl::table_of(version), version};
  fake_nccl::set_state(state_);
  nccl::replace_library(find);
}

FakeNccl::~FakeNccl() {
  end();
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->inside == 0; });
  nccl::replace_library(nullptr);
}

void FakeNccl::end() {
  const std::lock_guard lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
}

void FakeNccl::fail(const std::string& name, int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->faults.push_back({name, rank, false});
}

void FakeNccl::hang(const std::string& name, int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->faults.push_back({name, rank, true});
}

void FakeNccl::report_error(int rank) {
  const std::lock_guard lock(state_->mutex);
  for (const auto& comm : state_->communicators) {
    if (comm->rank == rank) comm->async_error = fake_nccl::kRemoteError;
  }
}

void FakeNccl::hide_from_this_thread(bool hidden) { hidden_here = hidden; }

int FakeNccl::calls(const std::string& name) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->calls.find(name);
  return found == state_->calls.end() ? 0 : found->second;
}

int FakeNccl::open_communicators() const {
  const std::lock_guard lock(state_->mutex);
  int open = 0;
  for (const auto& comm : state_->communicators) open += comm->ended ? 0 : 1;
  return open;
}

nccl::Config FakeNccl::last_config() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last_config;
}

std::vector<std::string> FakeNccl::misuse() const {
  const std::lock_guard lock(state_->mutex);
  return state_->misuse;
}

}  // namespace altorch
