// SPDX-License-Identifier: BSD-3-Clause
#include "backend/store/start_mpi.h"

#include <algorithm>

#include "base/env.h"
#include "bootstrap/bootstrap.h"
#include "transports/mpi/transport.h"
#include "transports/shm/transport.h"

namespace altorch::backend {
namespace {

void start(const MpiStart& asked, Rendezvous& group) {
  const Membership& members = group.group();
  BootstrapOptions options;
  options.timeout = bootstrap_timeout(members.timeout);
  // MPI's own questions are asked once.
  C10dStore keys(group.store().callers(), members.key, options.timeout);
  LivenessStore store(keys, liveness_of(members.watch), members.global_ranks);
  options.library = asked.library;
  options.shim_directory = asked.shim_directory;
  options.rank = members.rank;
  options.size = members.size();
  options.store = &store;
  options.job_id = asked.job;
  options.master_address = asked.master_address;
  start_mpi(options);
}

}  // namespace

std::chrono::milliseconds bootstrap_timeout(std::chrono::milliseconds timeout) {
  return std::min(timeout, seconds_setting("ALTORCH_BOOTSTRAP_SECONDS"));
}

std::shared_ptr<Transport> mpi_transport(Rendezvous& group, const std::vector<int>& mpi_ranks,
                                         const std::optional<MpiStart>& asked) {
  if (asked) start(*asked, group);
  auto mpi = running_mpi();
  if (!mpi) throw Error(ErrorKind::kUnsupported, describe_mpi());
  return std::make_shared<ShmTransport>(
      std::make_shared<MpiTransport>(std::move(mpi), group.group().global_ranks, mpi_ranks));
}

}  // namespace altorch::backend
