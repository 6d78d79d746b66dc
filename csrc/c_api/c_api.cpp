// SPDX-License-Identifier: BSD-3-Clause
#include "c_api/c_api.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "base/error.h"
#include "base/longest_timeout.h"
#include "c_api/callback_store.h"
#include "c_api/join.h"
#include "platform/fast_exit.h"
#include "platform/signal_check.h"
#include "reduction/exact_mode.h"
#include "reduction/reduce.h"
#include "runtime/callback_thread.h"
#include "trace/trace_board.h"
#include "windows/windows.h"

using namespace altorch;  // NOLINT

namespace {

struct CGroup {
  std::shared_ptr<Communicator> communicator;
  std::mutex order;  // held from taking a call's number to taking its place in the queue
};

struct LastError {
  std::string text;
  int code = 0;
  bool buffers_free = true;
};
thread_local LastError last_error;

int kept(const Error& error) {
  last_error.text = error.what();
  return last_error.code = 1 + static_cast<int>(error.kind());
}

// 0, or what `body` throws.
template <typename Body>
int guarded_c(Body&& body) {
  last_error.buffers_free = true;
  try {
    body();
    return 0;
  } catch (const Error& error) {
    return kept(error);
  } catch (const std::exception& error) {
    return kept(Error(ErrorKind::kInternal, error.what()));
  }
}

Operation operation_of(const altorch_call& call, int size) {
  Operation operation;
  operation.kind = static_cast<OpKind>(call.kind);
  operation.dtype = static_cast<DType>(call.dtype);
  operation.op = static_cast<ReduceOp>(call.op);
  operation.root = call.root;
  operation.input = call.input;
  operation.output = call.output;
  operation.count = call.count;
  const auto counts = [&](const std::int64_t* first) {
    return first ? std::span(first, static_cast<std::size_t>(size)) : std::span<const std::int64_t>();
  };
  operation.input_counts = counts(call.input_counts);
  operation.output_counts = counts(call.output_counts);
  operation.factor = call.factor;
  operation.tag = call.tag;
  operation.timeout = clamp_timeout(std::chrono::milliseconds(call.timeout_ms));
  return operation;
}

// Under the group's `order`: the call's number, or, for one that this rank refuses, the error that
// its peers are told.
void number(Communicator& group, Operation& operation, const char* refused) {
  if (operation.is_collective()) operation.sequence = group.next_sequence();
  if (refused) throw group.refuse(operation, Error(ErrorKind::kInvalidArgument, refused));
  if (operation.reduces()) {
    try {
      operation.op = op_for_call(operation.kind, operation.op, operation.dtype, exact_setting());
    } catch (const Error& error) {
      throw group.refuse(operation, error);
    }
  }
  if (operation.is_collective()) group.append_to_history(operation);
}

int named(const char* name, int count, const std::function<const char*(int)>& name_of_index) {
  for (int i = 0; i < count; ++i) {
    if (std::string_view(name) == name_of_index(i)) return i;
  }
  return -1;
}

}  // namespace

extern "C" {

int altorch_dtype(const char* name) {
  return named(name, kDTypeCount, [](int i) { return name_of(static_cast<DType>(i)); });
}

int altorch_kind(const char* name) {
  return named(name, kOpKindCount, [](int i) { return name_of(static_cast<OpKind>(i)); });
}

int altorch_can_reduce(int dtype, int op) {
  if (op < 0 || op >= kReduceOpCount) return 0;
  return can_reduce(static_cast<DType>(dtype),
                    rounded_once(static_cast<ReduceOp>(op), static_cast<DType>(dtype)));
}

const char* altorch_error() { return last_error.text.c_str(); }

int altorch_error_code() { return last_error.code; }

int altorch_buffers_free() { return last_error.buffers_free; }

void* altorch_join(const altorch_store* store, const char* name, const char* key, int rank, int size,
                   const int* global_ranks, int is_job, int64_t timeout_ms) {
  CGroup* made = nullptr;
  guarded_c([&] {
    Membership group;
    group.name = name;
    group.global_ranks.assign(global_ranks, global_ranks + size);
    group.rank = rank;
    group.is_job = is_job != 0;
    group.timeout = clamp_timeout(std::chrono::milliseconds(timeout_ms));
    try {
      made = new CGroup{join_group(*store, key, group), {}};
    } catch (const Error& error) {
      throw error.with_prefix("altorch: group '" + group.name + "', rank " + std::to_string(rank) + ": ");
    }
  });
  return made;
}

int altorch_run(void* group, const altorch_call* call) {
  return guarded_c([&] {
    auto& [communicator, order] = *static_cast<CGroup*>(group);
    SignalCheck::refuse_in_handler();
    Operation operation = operation_of(*call, communicator->size());
    std::unique_lock turn(order);
    number(*communicator, operation, call->refused);
    auto place = communicator->reserve(operation);
    turn.unlock();
    place.run(last_error.buffers_free);
  });
}

void* altorch_start(void* group, const altorch_call* call) {
  auto* task = new std::shared_ptr<Task>(std::make_shared<Task>());
  const int failed = guarded_c([&] {
    auto& [communicator, order] = *static_cast<CGroup*>(group);
    Task& own = **task;
    own.operation = operation_of(*call, communicator->size());
    own.input_counts.assign(own.operation.input_counts.begin(), own.operation.input_counts.end());
    own.output_counts.assign(own.operation.output_counts.begin(), own.operation.output_counts.end());
    own.operation.input_counts = own.input_counts;
    own.operation.output_counts = own.output_counts;
    const std::lock_guard turn(order);
    number(*communicator, own.operation, call->refused);
    if (own.operation.is_collective()) {
      communicator->submit(*task);
    } else {
      communicator->post(*task);
    }
  });
  if (!failed) return task;
  delete task;
  return nullptr;
}

int altorch_wait(void* group, void* task, int64_t timeout_ms) {
  int code = 0;
  const int failed = guarded_c([&] {
    const auto& own = *static_cast<std::shared_ptr<Task>*>(task);
    bool done = false;
    try {
      done = static_cast<CGroup*>(group)->communicator->wait(*own, std::chrono::milliseconds(timeout_ms));
    } catch (const Error&) {
      last_error.buffers_free = own->finished() && own->buffers_free;
      throw;
    }
    if (!done) {
      code = -1;
      return;
    }
    last_error.buffers_free = own->buffers_free;
    if (own->error) code = kept(*own->error);
  });
  return failed ? failed : code;
}

int altorch_is_done(void* task) { return (*static_cast<std::shared_ptr<Task>*>(task))->finished(); }

void altorch_release(void* task) { delete static_cast<std::shared_ptr<Task>*>(task); }

void altorch_close(void* group, const char* why) {
  static_cast<CGroup*>(group)->communicator->close(why, /*tell=*/false);
}

void altorch_leave(void* group) {
  static_cast<CGroup*>(group)->communicator->leave();
  altorch_close(group, "the group was destroyed");
  delete static_cast<CGroup*>(group);
}

int altorch_stats(void* group, altorch_stats_row* rows, size_t capacity, size_t* count) {
  return guarded_c([&] {
    const auto done = static_cast<CGroup*>(group)->communicator->statistics().rows();
    *count = done.size();
    for (std::size_t i = 0; i < std::min(capacity, done.size()); ++i) {
      altorch_stats_row& row = rows[i];
      const std::string_view route = done[i].route;
      std::snprintf(row.operation, sizeof row.operation, "%s", name_of(done[i].kind));
      std::snprintf(row.route, sizeof row.route, "%s:%.*s", done[i].transport, static_cast<int>(route.size()),
                    route.data());
      row.count = static_cast<std::int64_t>(done[i].count);
      row.bytes = static_cast<std::int64_t>(done[i].bytes);
      row.seconds = std::chrono::duration<double>(done[i].time).count();
    }
  });
}

void altorch_set_signal_check(int (*raised)()) {
  static int (*check)() = nullptr;
  check = raised;
  SignalCheck::set(raised ? +[] { return check() != 0; } : nullptr);
}

void altorch_stop() {
  CallbackStore::stop();
  Windows::stop();
  SignalCheck::set(nullptr);
  CallbackThread::finish(std::chrono::seconds(2));
  end_without_destructors(/*forced=*/false);
}

}  // extern "C"
