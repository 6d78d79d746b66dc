// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/launcher.h"

#include <cstdlib>

#include "base/number.h"

namespace altorch {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

int number(const char* name) {
  if (name == nullptr || !is_set(name)) return -1;
  return to_number<int>(std::getenv(name)).value_or(-1);
}

// A launcher is recognised by its rank and its size; where both are shared with others, `also` must
// be set too.
struct Row {
  LauncherKind kind;
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
};

// The more specific first: mpirun and Flux inside a Slurm allocation leave Slurm's variables
// visible.
constexpr Row kRows[] = {
    {LauncherKind::kOpenMpi, "Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK"},
    {LauncherKind::kMvapich, "MVAPICH's mpirun_rsh", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK"},
    {LauncherKind::kJsm, "jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"},
    {LauncherKind::kFlux, "Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"},
    {LauncherKind::kPals, "PALS", "PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID"},
    // PALS leaves the size to Cray's PMI; aprun sets the variables of Cray's PMI alone.
    {LauncherKind::kPals, "PALS", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID"},
    {LauncherKind::kPals, "Cray PMI", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK"},
    {LauncherKind::kSlurm, "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
    {LauncherKind::kHydra, "mpirun of MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
};

}  // namespace

Launcher detect_launcher() {
  Launcher found;
  if ((is_set("TORCHELASTIC_RUN_ID") || is_set("TORCHELASTIC_RESTART_COUNT")) && is_set("RANK") &&
      is_set("WORLD_SIZE")) {
    found.kind = LauncherKind::kTorchrun;
    found.name = "torchrun";
    found.rank = number("RANK");
    found.size = number("WORLD_SIZE");
    found.local_rank = number("LOCAL_RANK");
    return found;
  }
  // Sizes are exported by some tools for jobs of their own: only a process manager's socket makes
  // it a launcher.
  const bool has_pmi = is_set("PMI_FD") || is_set("PMI_PORT");
  const bool has_pmix = is_set("PMIX_NAMESPACE") && is_set("PMIX_RANK");
  for (const Row& row : kRows) {
    if (number(row.rank) < 0 || number(row.size) < 1) continue;
    if (row.kind == LauncherKind::kHydra && !has_pmi && !has_pmix) continue;
    if (row.kind == LauncherKind::kPals && number(row.local_rank) < 0) continue;
    // `srun --mpi=pmi2 mpirun`-like nesting aside, an interactive Slurm shell has a PROCID too, in
    // a job of one task.
    if (row.kind == LauncherKind::kSlurm && number(row.size) == 1 && !has_pmi && !has_pmix) continue;
    found.kind = row.kind;
    found.name = row.name;
    found.rank = number(row.rank);
    found.size = number(row.size);
    found.local_rank = number(row.local_rank);
    break;
  }
  if (found.kind == LauncherKind::kNone) return found;
  found.starts_mpich = has_pmi || found.kind == LauncherKind::kPals || found.kind == LauncherKind::kMvapich;
  found.starts_open_mpi = has_pmix || found.kind == LauncherKind::kOpenMpi ||
                          found.kind == LauncherKind::kJsm || found.kind == LauncherKind::kFlux;
  return found;
}

}  // namespace altorch
