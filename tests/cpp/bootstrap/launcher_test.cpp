// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "bootstrap/environment.h"

namespace altorch {
namespace {

Launcher detect_with(const std::map<std::string, std::string>& variables) {
  ScopedEnvironment environment;
  environment.scrub_launcher_variables();
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
        "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}) {
    environment.unset(name);
  }
  for (const auto& [name, value] : variables) environment.set(name, value);
  return detect_launcher();
}

TEST(Launcher, NoneInAPlainShell) {
  EXPECT_TRUE(detect_with({}).kind == LauncherKind::kNone);
  // RANK and WORLD_SIZE alone are a user's or a scheduler's: MPI has no launcher then.
  EXPECT_TRUE(detect_with({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).kind == LauncherKind::kNone);
}

TEST(Launcher, OpenMpi) {
  Launcher found = detect_with({{"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "8"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"PMIX_NAMESPACE", "x"},
                                {"PMIX_RANK", "3"}});
  EXPECT_TRUE(found.kind == LauncherKind::kOpenMpi);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_TRUE(found.starts(MpiFamily::kOpenMpi));
  EXPECT_FALSE(found.starts(MpiFamily::kMpich));
}

TEST(Launcher, Hydra) {
  std::map<std::string, std::string> variables = {
      {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}};
  // Without a process manager's socket the sizes prove nothing.
  EXPECT_TRUE(detect_with(variables).kind == LauncherKind::kNone);
  variables["PMI_FD"] = "7";
  Launcher found = detect_with(variables);
  EXPECT_TRUE(found.kind == LauncherKind::kHydra);
  EXPECT_TRUE(found.starts(MpiFamily::kMpich));
  EXPECT_FALSE(found.starts(MpiFamily::kOpenMpi));
}

TEST(Launcher, PalsAndAprunLeaveTheSizeToCraysPmi) {
  Launcher found =
      detect_with({{"PALS_RANKID", "3"}, {"PALS_LOCAL_RANKID", "1"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "8"}});
  EXPECT_TRUE(found.kind == LauncherKind::kPals);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_TRUE(found.starts(MpiFamily::kMpich));
  found = detect_with({{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"PMI_LOCAL_RANK", "1"}});
  EXPECT_TRUE(found.kind == LauncherKind::kPals);
  EXPECT_EQ(found.rank, 3);
  EXPECT_TRUE(detect_with({{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}).kind == LauncherKind::kNone);
}

TEST(Launcher, SlurmWithAndWithoutProcessManager) {
  std::map<std::string, std::string> variables = {
      {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "1"}};
  Launcher found = detect_with(variables);
  EXPECT_TRUE(found.kind == LauncherKind::kSlurm);
  EXPECT_FALSE(found.starts(MpiFamily::kMpich) || found.starts(MpiFamily::kOpenMpi));
  variables["PMI_FD"] = "9";
  EXPECT_TRUE(detect_with(variables).starts(MpiFamily::kMpich));
  variables.erase("PMI_FD");
  variables["PMIX_NAMESPACE"] = "slurm.pmix.1.0";
  variables["PMIX_RANK"] = "1";
  EXPECT_TRUE(detect_with(variables).starts(MpiFamily::kOpenMpi));
}

TEST(Launcher, TorchrunInsideAnotherLauncherComesFirst) {
  Launcher found = detect_with({{"TORCHELASTIC_RUN_ID", "none"},
                                {"RANK", "5"},
                                {"WORLD_SIZE", "6"},
                                {"LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_RANK", "0"},
                                {"OMPI_COMM_WORLD_SIZE", "2"},
                                {"SLURM_PROCID", "0"},
                                {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_TRUE(found.kind == LauncherKind::kTorchrun);
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.size, 6);
  EXPECT_FALSE(found.starts(MpiFamily::kOpenMpi) || found.starts(MpiFamily::kMpich));
}

}  // namespace
}  // namespace altorch
