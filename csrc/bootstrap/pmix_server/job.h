// SPDX-License-Identifier: BSD-3-Clause
// Describes a job to PMIx: which rank lives on which node.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/pmix_server/pmix_library.h"

namespace altorch {

struct PmixJob {
  std::string pmix_library;
  std::string name;
  std::string directory;  // for PMIx's files; made and removed by the helper
  int node = 0;           // which node this is
  std::vector<int> node_of_rank;
  std::vector<pid_t> local_processes;  // the ranks of this node

  int size() const { return static_cast<int>(node_of_rank.size()); }
  int node_count() const;
  std::vector<int> ranks_of(int node) const;
};

// The lines of a 'C' frame (frames.h).
PmixJob parse_job(const std::string& text);

std::string node_name(int node);

// Registers the job and its local ranks. Throws std::runtime_error.
void register_job(const PmixLibrary& pmix, const PmixJob& job);
// What the environment of a rank needs: NAME=VALUE lines.
std::string environment_of(const PmixLibrary& pmix, const PmixJob& job, int rank);

}  // namespace altorch
