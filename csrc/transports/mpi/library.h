// SPDX-License-Identifier: BSD-3-Clause
// Finds out what a given MPI library is and loads the shim that fits its ABI.
#pragma once

#include <string>

#include "transports/mpi/shim/table.h"

namespace altorch {

enum class MpiFamily { kMpich, kOpenMpi, kOther };

constexpr const char* name_of(MpiFamily family) {
  constexpr const char* names[] = {"MPICH", "Open MPI", "another MPI"};
  return names[static_cast<int>(family)];
}

// A loaded MPI library. Libraries stay loaded until the process ends: MPI leaves threads and exit
// handlers behind.
struct MpiLibrary {
  std::string path;     // as given
  std::string abi;      // "mpich", "openmpi" or "abi" (the standard ABI of MPI 5)
  std::string version;  // first line of MPI_Get_library_version, e.g. "Open MPI v4.1.4"
  MpiFamily family = MpiFamily::kOther;
  int major = 0;                 // of the version; 0 when it cannot be read
  bool has_ucx_and_ofi = false;  // MPICH: built with both netmods
  const AltorchMpiTable* table = nullptr;
  std::string
      one_sided_lacks;  // a function without which nothing of one-sided access may be called; or empty
};

// Loads `path` (a libmpi*.so, made visible to all later libraries) and from `shim_directory` the
// libaltorch_mpi_<abi>.so that fits. Throws Error(kUnsupported) with a sentence that says what is
// missing. Does not initialise MPI. May be called again with the same path.
MpiLibrary load_mpi_library(const std::string& path, const std::string& shim_directory);

}  // namespace altorch
