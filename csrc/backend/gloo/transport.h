// SPDX-License-Identifier: BSD-3-Clause
// torch's Gloo as the transport of messages, where no MPI is viable.
//
// Everything above the Channel is the same as over MPI: checks, algorithms, reductions, deadlines,
// messages.
#pragma once

#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backend/gloo/mesh.h"
#include "transports/transport.h"

namespace altorch::backend {

// Makes a ProcessGroupGloo for these ranks; collective. `addresses`: by rank. Only Python can make
// one: C++ would need Gloo's headers.
using GlooFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double timeout_seconds,
    const std::vector<std::string>& addresses)>;

class GlooTransport : public Transport {
 public:
  // `address` returns the address at which peers reach this rank, for the factory. It is called
  // only when there is something to connect.
  GlooTransport(GlooFactory factory, std::function<std::string()> address)
      : factory_(std::move(factory)), address_(std::move(address)) {}
  // A group of all ranks of the job makes the connections that later groups use. Throws what the
  // factory throws, too.
  std::unique_ptr<Links> open(const Membership& group, KeyValueStore& store) override;
  // All ranks destroy the job's first group between the same two calls. So they agree which later
  // groups share its connections, although other groups may still hold these.
  void group_ends(const Membership& group) override;

 private:
  const GlooFactory factory_;
  const std::function<std::string()> address_;
  std::weak_ptr<GlooMesh> founded_;  // by the job's first group
};

}  // namespace altorch::backend
