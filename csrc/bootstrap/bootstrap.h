// SPDX-License-Identifier: BSD-3-Clause
// Starts MPI in this process, however the process was started.
//
//   (a) torchrun, or anything else that sets RANK and WORLD_SIZE: altorch is the process manager, over the rendezvous
//       store (PMI-1 for the MPICH family, flux/ for Open MPI 4, pmix_server/ for Open MPI 5);
//   (b) mpirun or srun: MPI_Init finds its launcher;
//   (c) MPI is initialised already, by mpi4py for example: it is used as it is.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "rendezvous/key_value_store.h"
#include "transports/mpi/mpi.h"

namespace altorch {

struct BootstrapOptions {
  std::string library;         // path of libmpi*.so
  std::string shim_directory;  // where libaltorch_mpi_*.so and their companions lie
  int rank = -1;               // -1, with size -1: MPI says it (launcher or existing only)
  int size = -1;
  // Keys must be fresh in every call (a prefix of their own). nullptr: launcher or existing only.
  // Used by a native thread too while start_mpi runs: the caller must not hold Python's lock if the
  // store needs it.
  KeyValueStore* store = nullptr;
  std::string job_id;          // put before all keys
  std::string master_address;  // host of the store, from which the network interface is found; may be empty
  std::chrono::milliseconds timeout{120000};
};

// Blocks until MPI runs on all ranks, or throws an Error on all of them. kUnsupported: MPI cannot
// be used here, and nothing has happened to the process (fall back to Gloo); other kinds: the start
// itself failed. MPI is initialised once: later calls check that rank and size are the same and
// return the same object.
std::shared_ptr<Mpi> start_mpi(const BootstrapOptions& options);

// The Mpi of this process, or null.
std::shared_ptr<Mpi> running_mpi();

// One line: the MPI in use, or why there is none.
std::string describe_mpi();

// Finalises MPI at exit if start_mpi initialised it and nothing failed; waits no longer than
// `timeout` for ranks that are still busy. `after_failure`: the program ends with an error, so the
// other ranks need not come to MPI_Finalize. Call it while the interpreter still lives. It is safe
// to call it twice, while another thread starts MPI, and in forked children, where it does nothing.
void finalize_mpi(bool after_failure = false,
                  std::chrono::milliseconds timeout = std::chrono::milliseconds(2000));

}  // namespace altorch
