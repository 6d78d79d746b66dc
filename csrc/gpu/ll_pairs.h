// SPDX-License-Identifier: BSD-3-Clause
// An all_to_all of which some blocks are small: those through memory that the ranks share, the
// others by NCCL. A rank knows the sizes of its own blocks alone, so that each pair of ranks goes
// its own way: both know the same of it.
#pragma once

#include "gpu/host_staged/messages.h"
#include "gpu/ll_exchanges.h"
#include "gpu/nccl_route.h"

namespace altorch {

class LlPairs : public GpuRoute {
 public:
  LlPairs(const char* name, LlExchanges& small, NcclRoute& nccl, int rank, int size)
      : name_(name), ll_(small), nccl_(nccl), rank_(rank), size_(size) {}

  // Whether this rank is in any pair of small blocks.
  bool serves(const Operation& operation) const {
    bool found = false;
    const auto most = static_cast<std::int64_t>(ll_.pair_bytes());
    for_each_pair(operation, size_, [&](int peer, const void*, std::int64_t sent, void*, std::int64_t taken) {
      const std::int64_t larger = std::max(sent, taken);
      found |= larger > 0 && larger <= most && peer != rank_;
    });
    return found;
  }

  const char* name() const override { return name_; }
  void enqueue(std::span<const Operation> operations, void* stream) override {
    const auto rest = ll_.enqueue_pairs(operations.front(), stream);
    marks_results_ = !rest;
    if (rest) nccl_.enqueue({&*rest, 1}, stream);
  }
  bool marks_results() const override { return marks_results_; }
  // Both are asked themselves.
  std::optional<Error> failure() override { return std::nullopt; }
  void abort(const std::string&) override {}

 private:
  const char* const name_;
  LlExchanges& ll_;
  NcclRoute& nccl_;
  const int rank_, size_;
  bool marks_results_ = false;
};

}  // namespace altorch
