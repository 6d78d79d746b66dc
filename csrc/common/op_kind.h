// The kinds of operation. Names are torch.distributed's.
#pragma once

#include <cstdint>

namespace altorch {

// The order is part of the wire fingerprint: append, never reorder.
enum class OpKind : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier,
  kSend,
  kReceive,
};
inline constexpr int kOpKindCount = 11;

constexpr const char* name_of(OpKind kind) {
  constexpr const char* names[kOpKindCount] = {"all_reduce",     "reduce",     "broadcast", "all_gather",
                                               "reduce_scatter", "all_to_all", "gather",    "scatter",
                                               "barrier",        "send",       "recv"};
  return names[static_cast<int>(kind)];
}

}  // namespace altorch
