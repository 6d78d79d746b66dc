// altorch.Options: what pg_options may say.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace altorch::backend {

struct AlOptions : public c10d::Backend::Options {
  explicit AlOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout) : Options("al", timeout) {}
};

}  // namespace altorch::backend
