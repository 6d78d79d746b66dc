// SPDX-License-Identifier: BSD-3-Clause
// How a call of AlBackend becomes an operation: shared by backend_reduce.cpp, backend_move.cpp,
// backend_message.cpp.
#pragma once

#include "backend/c10d/backend.h"
#include "backend/c10d/errors.h"
#include "backend/recorder/profiler_range.h"
#include "platform/signal_check.h"

namespace altorch::backend {

template <typename Fill>
AlBackend::WorkPtr AlBackend::issue(c10d::OpType type, OpKind kind, int device,
                                    std::chrono::milliseconds timeout, bool async, Fill&& fill) {
  ProfilerRange range(options_->served_name, name_of(kind), is_part());
  return called([&] {
    PreparedCall call;
    // Calls of several threads enter the queue in the order of their sequence numbers. Peers match
    // calls by number, and would wait if a call stood behind a later one here.
    const bool in_both_orders = kind == OpKind::kBarrier && device != kHostDevice;
    std::unique_lock turn(order_mutex(in_both_orders ? kHostDevice : device));
    std::unique_lock<std::mutex> turn_on_gpu;
    if (in_both_orders) turn_on_gpu = std::unique_lock(order_mutex(device));
    call.operation.kind = kind;
    // Also where the call is refused: the peers wait in this order.
    call.operation.device = in_both_orders ? kHostDevice : device;
    call.operation.timeout = deadline(timeout);
    const auto fill_and_check = [&] {
      fill(call);
      check_device(call);
      for (const Block& block : call.stores) block.check_storable();
    };
    if (estimate_.is_running()) {
      try {
        communicator_->check_open();
        fill_and_check();
      } catch (const Error& cause) {
        throw communicator_->explain(call.operation, cause);
      }
      call.bind();
      return estimate(type, call);
    }
    call.operation.sequence = communicator_->next_sequence(call.operation.device);
    try {
      fill_and_check();
    } catch (const Error& cause) {
      throw communicator_->refuse(call.operation, cause);
    } catch (const c10::Error& cause) {  // torch's own checks
      communicator_->refuse(call.operation,
                            Error(ErrorKind::kInvalidArgument, cause.what_without_backtrace()));
      throw;
    }
    call.bind();
    range.describe(call.operation, *communicator_, call.keep.empty() ? at::Tensor() : call.keep.front());
    communicator_->append_to_history(call.operation);
    if (in_both_orders) {
      communicator_->append_to_gpu_history(call.operation);
      turn_on_gpu.unlock();
    }
    if (!blocks(call, async)) return launch(type, std::move(call), async);
    load(call);
    auto place = communicator_->reserve(call.operation);
    turn.unlock();
    return run(type, call, place);
  });
}

template <typename Body>
AlBackend::WorkPtr AlBackend::called(Body&& body) {
  try {
    return guarded([&] {
      SignalCheck::refuse_in_handler();
      return body();
    });
  } catch (...) {
    spoil_window();
    throw;
  }
}

template <typename Each>
AlBackend::WorkPtr AlBackend::coalesce(OpKind kind, const Tensors& tensors, bool async, Each&& each) {
  const std::size_t count = tensors.size();
  WorkPtr last;
  if (async && windows_.joinable()) {  // torch opened it, and its end gives the Work of all
    for (std::size_t i = 0; i < count; ++i) last = each(i);
    return last;
  }
  std::optional<ProfilerRange> range;
  if (options_->serves_a_name()) range.emplace(options_->served_name, name_of(kind)).list(tensors);
  const auto window = make_window(/*own=*/true);
  windows_.open(window);
  try {
    for (std::size_t i = 0; i < count; ++i) each(i);
  } catch (...) {
    windows_.close(window);
    end_window(*window);  // the calls made so far are valid: the peers wait in them
    spoil_window();
    throw;
  }
  windows_.close(window);
  auto work = end_window(*window);
  if (!async) work->wait();
  return work;
}

}  // namespace altorch::backend
