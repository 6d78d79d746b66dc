// SPDX-License-Identifier: BSD-3-Clause
// Ranks of an NCCL communicator that are threads, each with a fake device and a stream.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/nccl/nccl_comm.h"
#include "support/fake_device.h"
#include "support/fake_nccl.h"
#include "support/map_store.h"
#include "support/on_threads.h"
#include "support/says.h"

namespace altorch::nccl {

inline constexpr std::chrono::seconds kEnough{20};

struct NcclRank {
  int rank, size;
  FakeDevice& device;
  Stream stream;
  std::unique_ptr<NcclComm> comm;

  void enqueue(const Call& call) const { comm->enqueue({&call, 1}, stream); }
  void finish() const { ASSERT_TRUE(device.synchronize(stream)); }
};

// Runs `body` as every rank of a communicator, and returns what each threw. Streams may be left
// with work that was aborted (`aborts`).
inline std::vector<std::string> try_on_ranks(int size, const std::function<void(NcclRank&)>& body,
                                             bool aborts = false, const Knobs& knobs = {}) {
  MapStore store;
  return on_threads(size, [&](int rank) {
    FakeDevice device({.seed = static_cast<unsigned>(rank + 1), .aborts = aborts});
    const Stream stream = device.make_stream();
    NcclRank me{rank, size, device, stream,
                std::make_unique<NcclComm>(store, "key", 0, rank, size, kEnough, knobs)};
    body(me);
    me.finish();
  });
}

// Expects that all goes well, and that NCCL is used as its documentation wants it.
inline void on_ranks(FakeNccl& fake, int size, const std::function<void(NcclRank&)>& body) {
  EXPECT_EQ(try_on_ranks(size, body), std::vector<std::string>(static_cast<std::size_t>(size)));
  EXPECT_EQ(fake.misuse(), std::vector<std::string>());
  EXPECT_EQ(fake.open_communicators(), 0);
}

inline Call call_of(OpKind kind, DType dtype, const void* input, void* output, std::int64_t count,
                    int root = 0) {
  Call call;
  call.kind = kind;
  call.dtype = dtype;
  call.input = input;
  call.output = output;
  call.count = count;
  call.root = root;
  return call;
}

// A sum of float32 in place.
inline Call sum_of(std::vector<float>& values) {
  return call_of(OpKind::kAllReduce, DType::kFloat32, values.data(), values.data(),
                 static_cast<std::int64_t>(values.size()));
}

// What `body` throws.
template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(name_of(error.kind())) + ": " + error.what();
  }
  return "";
}

}  // namespace altorch::nccl
