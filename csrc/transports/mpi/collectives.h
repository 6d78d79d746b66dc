// SPDX-License-Identifier: BSD-3-Clause
// MPI's own collectives on one communicator, posted non-blocking.
//
// Offered: everything that only moves data; reductions where MPI gives torch's result and every
// rank the same bits: integers (SUM, PRODUCT, MIN, MAX and the bit operators; AVG as SUM), bool,
// float32, float64 (SUM, PRODUCT) and complex (SUM). Not offered: half types (MPI has none), MIN
// and MAX of floats (NaN), PRODUCT of complex (a fused multiply-add gives a*b and b*a different
// bits), anything that counts beyond INT_MAX. kAvg and kPremulSum reduce as kSum; the engine
// scales.
#pragma once

#include "transports/mpi/mpi.h"
#include "transports/native_collectives.h"

namespace altorch {

class MpiCollectives : public NativeCollectives {
 public:
  // `channel`: of the same communicator.
  MpiCollectives(Mpi& mpi, std::intptr_t communicator, Channel& channel);

  // The answer depends on what all ranks know, except for uneven gather and scatter, whose counts
  // only the root may know: a total beyond INT_MAX elements is then an error of start() on the
  // root.
  // The same without an MPI: of a group of `size` ranks.
  static bool has(const Call& call, int size);
  std::string_view name() const override { return kName; }
  static constexpr std::string_view kName = kMpiCollectives;
  bool offers(const Call& call) const override { return has(call, size_); }
  void start(const Call& call, std::uint64_t fingerprint, std::string_view protocol,
             Request& request) override;
  // To MPI a request is a request.
  State test(Request& request, std::optional<Error>& error) override {
    return channel_.test({&request, 1}, error);
  }
  bool cancel(Request& request) override { return channel_.cancel({&request, 1}); }

 private:
  Mpi& mpi_;
  std::intptr_t communicator_;
  Channel& channel_;
  int rank_;
  int size_;
};

}  // namespace altorch
