// SPDX-License-Identifier: BSD-3-Clause
// altorch.Options: what pg_options may say.
#pragma once

#include <torch/version.h>

#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/longest_timeout.h"
#include "gpu/nccl/nccl_comm.h"
#include "gpu/on_error.h"

namespace altorch::backend {

struct AlOptions : public c10d::Backend::Options {
  explicit AlOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : Options("al", clamp_timeout(timeout)) {}

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
  c10::intrusive_ptr<Options> clone() const override { return c10::make_intrusive<AlOptions>(*this); }
#endif

  // The backend that the program asked for (altorch.serve).
  std::string served_name = "al";
  bool serves_a_name() const { return served_name != std::string_view("al"); }
  bool is_high_priority_stream = true;  // the one that asynchronous operations on CUDA tensors run on
  nccl::Knobs nccl;
  bool exact = false;               // SUM and AVG of floating types are exact: deterministic='exact'
  std::optional<OnError> on_error;  // nothing: what ALTORCH_ON_ERROR says
};

}  // namespace altorch::backend
