// An all_to_all of which some blocks are small: those through memory that the ranks share, the others by
// NCCL. A rank knows the sizes of its own blocks alone, so that each pair of ranks goes its own way: both
// know the same of it.
#pragma once

#include "engine/host_staged/shared.h"
#include "engine/nccl_route.h"

namespace altorch {

class SmallPairs : public GpuRoute {
 public:
  SmallPairs(Shared& shared, NcclRoute& nccl, int rank, int size)
      : shared_(shared), nccl_(nccl), rank_(rank), size_(size) {}

  // Whether this rank is in any pair of small blocks.
  bool serves(const Operation& operation) const { return sizes_of(operation).small; }

  const char* name() const override { return shared_.name(); }
  void enqueue(std::span<const Operation> operations, void* stream) override {
    Operation operation = operations.front();
    shared_.exchange_pairs(operation, stream);
    if (!sizes_of(operation).large) return;
    operation.apart = static_cast<std::int64_t>(shared_.pair_bytes());
    nccl_.enqueue({&operation, 1}, stream);
  }
  // Both are asked themselves.
  std::optional<Error> failure() override { return std::nullopt; }
  void abort(const std::string&) override {}

 private:
  struct Sizes {
    bool small = false, large = false;
  };
  Sizes sizes_of(const Operation& operation) const {
    Sizes sizes;
    const auto most = static_cast<std::int64_t>(shared_.pair_bytes());
    for_each_pair(operation, size_, [&](int peer, const void*, std::int64_t sent, void*, std::int64_t taken) {
      const std::int64_t larger = std::max(sent, taken);
      sizes.small |= larger > 0 && larger <= most && peer != rank_;
      sizes.large |= larger > most;
    });
    return sizes;
  }

  Shared& shared_;
  NcclRoute& nccl_;
  const int rank_, size_;
};

}  // namespace altorch
