// SPDX-License-Identifier: BSD-3-Clause
#include "transports/mpi/transport.h"

#include "base/fnv.h"

namespace altorch {

MpiTransport::MpiTransport(std::shared_ptr<Mpi> mpi, const std::vector<int>& global_ranks,
                           const std::vector<int>& mpi_ranks)
    : mpi_(std::move(mpi)) {
  for (std::size_t i = 0; i < global_ranks.size(); ++i) mpi_rank_of_[global_ranks[i]] = mpi_ranks.at(i);
}

std::unique_ptr<Links> MpiTransport::open(const Membership& group, KeyValueStore& store) {
  std::vector<int> ranks;
  for (const int rank : group.global_ranks) ranks.push_back(mpi_rank_of_.at(rank));
  const auto tag = static_cast<std::int64_t>(Fnv().add(group.name).value() % 32768);
  GroupCreation creation{group.name, group.timeout, [&store] { store.check_peers(); }};
  creation.deaths = group.peer_deaths();
  return mpi_->create_group(ranks, tag, creation);
}

}  // namespace altorch
