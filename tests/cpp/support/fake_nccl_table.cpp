// SPDX-License-Identifier: BSD-3-Clause
// The fake NCCL's table of functions, as its version has it.
#include <atomic>

#include "support/fake_nccl_host.h"

namespace altorch::fake_nccl {
namespace {

std::atomic<State*> current{nullptr};

const char* error_string(Result result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kInternalError:
      return "internal error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}

const char* last_error(Comm) { return "the fake says so"; }

}  // namespace

State& state() { return *current.load(); }
void set_state(State* state) { current.store(state); }

nccl::Table table_of(int version) {
  nccl::Table table;
  add_communicators(table);
  add_buffers(table);
  add_memory(table);
  add_operations(table);
  add_one_sided(table);
  table.set_device = [](int) { return 0; };
  table.error_string = error_string;
  table.last_error = last_error;
  if (version < 21900) {
    table.allocate = nullptr;
    table.release = nullptr;
    table.add_buffer = nullptr;
    table.remove_buffer = nullptr;
  }
  if (version < 22700) {
    table.add_window = nullptr;
    table.remove_window = nullptr;
  }
  if (version < 22800) table.all_to_all = nullptr;
  if (version < 22900) {
    table.put_signal = nullptr;
    table.signal = nullptr;
    table.wait_signal = nullptr;
  }
  if (version < 22907) {
    table.suspend = nullptr;
    table.resume = nullptr;
    table.memory_stat = nullptr;
  }
  return table;
}

}  // namespace altorch::fake_nccl
