// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/peer/protocols.h"

#include <gtest/gtest.h>

#include "base/shape.h"
#include "gpu/host_staged/operands.h"

namespace altorch {
namespace {

constexpr std::int64_t kKibibyte = 1024, kMebibyte = 1024 * kKibibyte;

Operation floats_call(OpKind kind, std::int64_t bytes, DType dtype = DType::kFloat32) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = dtype;
  operation.count = bytes / static_cast<std::int64_t>(size_of(dtype));
  return operation;
}

PeerLayout fitting_layout(int ranks, bool linked) { return PeerLayout::fitting(ranks, 48 << 20, linked); }

std::string protocol_taken(const Operation& operation, int ranks, bool linked, std::string_view asked = {}) {
  return std::string(protocol_of(peer_protocols(), operation, fitting_layout(ranks, linked), asked).name);
}

TEST(PeerProtocols, FollowTheSizeAndTheLinks) {
  struct Case {
    OpKind kind;
    std::int64_t bytes;
    int ranks;
    bool linked;
    const char* name;
  };
  const Case cases[] = {
      {OpKind::kAllReduce, 64 * kKibibyte, 2, true, "ll"},
      {OpKind::kAllReduce, 128 * kKibibyte, 2, true, "ll"},
      {OpKind::kAllReduce, 128 * kKibibyte + 4, 2, true, "ll128"},
      {OpKind::kAllReduce, 256 * kMebibyte, 2, true, "ll128"},
      {OpKind::kAllReduce, 256 * kKibibyte, 4, true, "ll128"},
      {OpKind::kAllReduce, 256 * kKibibyte + 4, 4, true, "ll128_two_shot"},
      {OpKind::kReduceScatter, 16 * kMebibyte, 4, true, "ll128"},
      {OpKind::kAllGather, 32 * kMebibyte, 2, true, "ll128"},
      {OpKind::kAllGather, 33 * kMebibyte, 2, true, "exchange"},
      {OpKind::kAllGather, 33 * kMebibyte, 4, true, "ll128"},
      {OpKind::kAllReduce, 1 * kMebibyte, 2, false, "ll"},
      {OpKind::kAllReduce, 2 * kMebibyte, 2, false, "one_shot"},
      {OpKind::kAllReduce, 2 * kMebibyte, 4, false, "two_shot"},
      {OpKind::kReduceScatter, 2 * kMebibyte, 4, false, "one_shot"},
      {OpKind::kBroadcast, 2 * kMebibyte, 4, false, "exchange"},
      {OpKind::kAllToAll, 8, 4, false, "pairs"},
      {OpKind::kGather, 8, 4, true, "pairs"},
      {OpKind::kSend, 8, 4, true, "messages"},
  };
  for (const Case& each : cases)
    EXPECT_EQ(protocol_taken(floats_call(each.kind, each.bytes), each.ranks, each.linked), each.name)
        << name_of(each.kind) << " of " << each.bytes << " among " << each.ranks;
}

TEST(PeerProtocols, OneCarriesEveryCall) {
  for (int kind = 0; kind < kRoutedKindCount; ++kind) {
    if (is_scan(static_cast<OpKind>(kind))) continue;  // host_relay carries them
    for (const int ranks : {1, 2, 3, 8, 16}) {
      for (const bool linked : {false, true}) {
        for (std::int64_t bytes = 0; bytes < 1024 * kMebibyte; bytes = bytes * 4 + 16)
          EXPECT_NO_THROW(
              protocol_taken(floats_call(static_cast<OpKind>(kind), bytes), ranks, linked && ranks > 1));
      }
    }
  }
}

TEST(PeerProtocols, WhatIsAskedForIsTakenWhereItCanCarryTheCall) {
  const Operation small = floats_call(OpKind::kAllReduce, 1 * kKibibyte),
                  large = floats_call(OpKind::kAllReduce, 16 * kMebibyte);
  EXPECT_EQ(protocol_taken(small, 4, true, "ll128"), "ll128");
  EXPECT_EQ(protocol_taken(small, 4, true, "ll128_two_shot"), "ll128_two_shot");
  EXPECT_EQ(protocol_taken(large, 4, true, "ll128"), "ll128");
  EXPECT_EQ(protocol_taken(large, 4, false, "one_shot"), "one_shot");
  EXPECT_EQ(protocol_taken(floats_call(OpKind::kAllGather, 64 * kMebibyte), 2, true, "ll128"), "ll128");
  // Else as if nothing was asked for.
  EXPECT_EQ(protocol_taken(large, 4, true, "ll"), "ll128_two_shot");
  EXPECT_EQ(protocol_taken(large, 2, true, "ll128_two_shot"), "ll128");
  EXPECT_EQ(protocol_taken(large, 4, true, "one_shot"), "ll128_two_shot");
  EXPECT_EQ(protocol_taken(large, 4, false, "ll128"), "two_shot");
}

TEST(PeerProtocols, ExplainedIsWhatIsTakenAndWhyNotTheOthers) {
  const ExplainedProtocol said = explain_protocol(
      peer_protocols(), floats_call(OpKind::kAllReduce, 16 * kMebibyte), fitting_layout(4, true), {});
  EXPECT_EQ(said.name, "ll128_two_shot");
  EXPECT_NE(said.steps.find("by LL128"), std::string::npos);
  EXPECT_EQ(said.others.size() + 1, peer_protocols().size());
  for (const auto& [name, why] : said.others) EXPECT_FALSE(why.empty()) << name;
}

}  // namespace
}  // namespace altorch
