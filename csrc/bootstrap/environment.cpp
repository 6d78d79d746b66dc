// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

namespace altorch {
namespace {

// What process managers set for the processes that they start. A prefix ends in an asterisk.
// Settings that a user makes (OMPI_MCA_btl, PMIX_MCA_*, UCX_*, MPIR_CVAR_*) stay.
constexpr std::string_view kIdentity[] = {
    "PMI_*",
    "PMI2_*",
    "PMIX_*",
    "HYDI_*",
    "HYDRA_*",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "MPIEXEC_*",
    "OMPI_COMM_WORLD_*",
    "OMPI_APP_CTX_*",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_FIRST_RANKS",
    "OMPI_NUM_APP_CTX",
    "OMPI_FILE_LOCATION",
    "OMPI_COMMAND",
    "OMPI_ARGV",
    "OMPI_VERSION",
    "OMPI_PARENT_PORT",
    "OMPI_MCA_orte_*",
    "OMPI_MCA_ess*",
    "OMPI_MCA_pmix*",
    "OMPI_MCA_plm*",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
    "PRTE_*",
    "ORTE_*",
    "MV2_COMM_WORLD_*",
    "FLUX_*",
    "PALS_*",
    "JSM_*",
};
constexpr std::string_view kKept[] = {"PMIX_MCA_*", "PRTE_MCA_*", "HYDRA_FULL_CXX"};

bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.back() != '*') return name == pattern;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

}  // namespace

bool is_launcher_variable(const std::string& name) {
  for (std::string_view pattern : kKept) {
    if (matches(name, pattern)) return false;
  }
  for (std::string_view pattern : kIdentity) {
    if (matches(name, pattern)) return true;
  }
  return false;
}

void ScopedEnvironment::remember(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  before_.try_emplace(name, value != nullptr ? std::optional<std::string>(value) : std::nullopt);
}

void ScopedEnvironment::set(const std::string& name, const std::string& value) {
  remember(name);
  setenv(name.c_str(), value.c_str(), 1);
}

void ScopedEnvironment::set_default(const std::string& name, const std::string& value) {
  if (std::getenv(name.c_str()) == nullptr) set(name, value);
}

void ScopedEnvironment::unset(const std::string& name) {
  remember(name);
  unsetenv(name.c_str());
}

void ScopedEnvironment::scrub_launcher_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals == nullptr) continue;
    std::string name(*entry, static_cast<std::size_t>(equals - *entry));
    if (is_launcher_variable(name)) names.push_back(std::move(name));
  }
  for (const std::string& name : names) unset(name);
}

void ScopedEnvironment::restore() {
  for (const auto& [name, value] : before_) {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }
  before_.clear();
}

}  // namespace altorch
