// SPDX-License-Identifier: BSD-3-Clause
// MPI as a transport of groups.
#pragma once

#include <map>

#include "transports/mpi/mpi.h"
#include "transports/transport.h"

namespace altorch {

class MpiTransport : public Transport {
 public:
  // `mpi_ranks`: as MPI numbers them, by the first group that there ever was, of these ranks of the
  // job.
  MpiTransport(std::shared_ptr<Mpi> mpi, const std::vector<int>& global_ranks,
               const std::vector<int>& mpi_ranks);
  std::unique_ptr<Links> open(const Membership& group, KeyValueStore& store) override;
  bool has_collectives() const override { return true; }

 private:
  const std::shared_ptr<Mpi> mpi_;
  std::map<int, int> mpi_rank_of_;  // by global rank
};

}  // namespace altorch
