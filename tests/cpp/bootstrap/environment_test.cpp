// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace altorch {
namespace {

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "<unset>";
}

TEST(ScopedEnvironment, PutsBackWhatItFound) {
  setenv("ALTORCH_TEST_A", "before", 1);
  unsetenv("ALTORCH_TEST_B");
  {
    ScopedEnvironment environment;
    environment.set("ALTORCH_TEST_A", "1");
    environment.set("ALTORCH_TEST_A", "2");
    environment.set("ALTORCH_TEST_B", "3");
    EXPECT_EQ(value_of("ALTORCH_TEST_A"), "2");
    EXPECT_EQ(value_of("ALTORCH_TEST_B"), "3");
    environment.unset("ALTORCH_TEST_A");
    EXPECT_EQ(value_of("ALTORCH_TEST_A"), "<unset>");
  }
  EXPECT_EQ(value_of("ALTORCH_TEST_A"), "before");
  EXPECT_EQ(value_of("ALTORCH_TEST_B"), "<unset>");
  unsetenv("ALTORCH_TEST_A");
}

TEST(ScopedEnvironment, TheUsersValueWinsOverADefault) {
  setenv("ALTORCH_TEST_A", "user", 1);
  {
    ScopedEnvironment environment;
    environment.set_default("ALTORCH_TEST_A", "ours");
    EXPECT_EQ(value_of("ALTORCH_TEST_A"), "user");
  }
  EXPECT_EQ(value_of("ALTORCH_TEST_A"), "user");
  unsetenv("ALTORCH_TEST_A");
}

TEST(ScopedEnvironment, ScrubsIdentitiesAndKeepsSettings) {
  setenv("PMIX_NAMESPACE", "step", 1);
  setenv("PMI_FD", "5", 1);
  setenv("OMPI_MCA_btl", "self,vader", 1);
  {
    ScopedEnvironment environment;
    environment.scrub_launcher_variables();
    EXPECT_EQ(value_of("PMIX_NAMESPACE"), "<unset>");
    EXPECT_EQ(value_of("PMI_FD"), "<unset>");
    EXPECT_EQ(value_of("OMPI_MCA_btl"), "self,vader");
  }
  EXPECT_EQ(value_of("PMIX_NAMESPACE"), "step");
  EXPECT_EQ(value_of("PMI_FD"), "5");
  for (const char* name : {"PMIX_NAMESPACE", "PMI_FD", "OMPI_MCA_btl"}) unsetenv(name);
}

TEST(LauncherVariable, IsAnIdentityAndNotATuning) {
  for (const char* name :
       {"PMI_RANK", "PMI2_FD", "PMIX_SERVER_URI41", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_orte_hnp_uri",
        "OMPI_MCA_ess_base_jobid", "MPI_LOCALRANKID", "FLUX_JOB_ID", "PRTE_LAUNCHED"}) {
    EXPECT_TRUE(is_launcher_variable(name));
  }
  for (const char* name : {"PMIX_MCA_gds", "OMPI_MCA_btl", "OMPI_ALLOW_RUN_AS_ROOT", "UCX_TLS",
                           "MPIR_CVAR_DEBUG_SUMMARY", "RANK", "SLURM_JOB_ID", "PATH"}) {
    EXPECT_FALSE(is_launcher_variable(name));
  }
}

}  // namespace
}  // namespace altorch
