// SPDX-License-Identifier: BSD-3-Clause
#include "base/env.h"

#include <cstdlib>
#include <cstring>

#include "base/error.h"

extern char** environ;

namespace altorch {
namespace {

constexpr Setting kSettings[] = {
    {"ALTORCH_MPI", "path or name", "",
     "The MPI library to use: a path to libmpi.so, 'mpich', 'openmpi', or 'none' for Gloo. Empty: look for "
     "one."},
    {"ALTORCH_MPI_THREAD", "serialized|multiple|single", "serialized",
     "The thread level asked of MPI; serialized has the fastest shared-memory paths."},
    {"ALTORCH_ROUTE", "rules", "",
     "Chooses algorithms: 'all_reduce=ring', 'all_reduce:0-64k=recursive_doubling,broadcast=native'; of CUDA "
     "tensors routes: 'cuda=host_staged', 'all_reduce:0-1m=host_staged', or a protocol of one: "
     "'all_reduce:0-64k=peer/ll128', 'all_reduce=shm/two_steps' (CPU); for groups of 16 ranks, or of 16 "
     "ranks on 2 nodes: 'all_reduce@16=ring', 'all_reduce@16/2:0-64k=hierarchical'; what carries windows: "
     "'window=messages'.",
     /*must_agree=*/true},
    {"ALTORCH_TUNED", "path", "",
     "What `altorch tune` wrote on this machine: which route or protocol carries which sizes. ALTORCH_ROUTE "
     "comes before it. A file of another machine or version is refused with a warning."},
    {"ALTORCH_DETERMINISTIC", "0|1|exact", "0",
     "1: sums of CUDA tensors are added in the order of the ranks, so that bits depend on neither size nor "
     "place; "
     "NCCL and host_relay then carry no reductions of floating types. exact: SUM and AVG of floating types, "
     "on "
     "CPU and GPU, are the exact sum, rounded once, so that bits do not depend on the number of ranks "
     "either.",
     /*must_agree=*/true},
    {"ALTORCH_OBJECTS", "0|1", "0",
     "1: all_gather_object and the other calls of torch.distributed that move objects are those of "
     "altorch.objects, from the "
     "first group of \"al\" on.",
     /*must_agree=*/true},
    {"ALTORCH_SERVES", "names", "",
     "Names of torch's backends, 'gloo' or 'gloo,nccl': groups that a program makes with them are made by "
     "altorch, without a "
     "change of the program.",
     /*must_agree=*/true},
    {"ALTORCH_SEGMENT_BYTES", "bytes", "1048576", "Size of one segment of a pipelined algorithm.",
     /*must_agree=*/true},
    {"ALTORCH_SHM_BYTES", "bytes", "4194304",
     "Memory that the ranks of a group on one node share to carry CPU tensors, for all of them together; 0: "
     "none.",
     /*must_agree=*/true},
    {"ALTORCH_NODE", "text", "",
     "Ranks with different texts count as on different nodes, whatever host they run on: cuts one machine "
     "into several to try out what happens between nodes."},
    {"ALTORCH_PINNED_BYTES", "bytes", "33554432",
     "Pinned memory that each rank of a group may take to carry CUDA tensors through the host.",
     /*must_agree=*/true},
    {"ALTORCH_STALL_SECONDS", "seconds", "1",
     "How long an operation waits before it compares notes with its peers through the store."},
    {"ALTORCH_FLIGHT_RECORDER", "own|torch", "own",
     "What records the latest calls for post-mortems: altorch, in a tenth of a microsecond a call, or "
     "torch's "
     "hook, in two or "
     "three, with the Python stack of each. Torch before 2.15 has its own or none."},
    {"ALTORCH_TRACE", "on|socket|off", "on",
     "Whether `altorch trace` may ask this process what it is at, and, when on, whether SIGUSR1 has it say "
     "so on "
     "standard error, where the program has no handler of its own."},
    {"ALTORCH_METRICS", "path", "",
     "A file that is written every 5 s and at the end, for Prometheus: operations, bytes and seconds by "
     "group and route, "
     "calls under way, "
     "lost ranks. al.prom becomes al.RANK.prom. Not with ALTORCH_TRACE=off."},
    {"ALTORCH_ON_ERROR", "poison|teardown|continue", "poison",
     "What becomes of results on GPUs whose operation failed under way: poison (they turn into NaN, or the "
     "extreme of their type, before they can be read), teardown (the process ends with what went wrong "
     "on standard error) or continue (they hold whatever was there; the next call raises)."},
    {"ALTORCH_BOOTSTRAP_SECONDS", "seconds", "120", "Deadline for starting MPI, or NCCL, on every rank."},
    {"ALTORCH_SILENCE_SECONDS", "seconds", "4",
     "How long another node may be silent, the kernel's answers included, before its ranks are taken for "
     "lost. More where "
     "the network between nodes is away for longer at times."},
    {"ALTORCH_LOG_LEVEL", "error|warning|info|debug", "warning", "What is written to standard error."},
};

// The code that reads a setting makes an integer of it: bytes times a number of ranks, or seconds
// in nanoseconds.
constexpr double kMaxBytes = 1e12, kMaxSeconds = 1e9;

bool is_numeric(const Setting& row) {
  return std::strcmp(row.type, "seconds") == 0 || std::strcmp(row.type, "bytes") == 0;
}

// Throws Error(kInvalidArgument).
double number_of(const Setting& row, const std::string& text) {
  const bool is_time = std::strcmp(row.type, "seconds") == 0;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const bool is_one = end != text.c_str() && *end == '\0';
  if (is_one && number >= 0 && number <= (is_time ? kMaxSeconds : kMaxBytes)) return number;
  throw Error(ErrorKind::kInvalidArgument, std::string(row.name) + "='" + text + "' is no number of " +
                                               row.type + " from 0 to " + (is_time ? "1e9" : "1e12"));
}

const Setting& row_of(const char* name) {
  for (const Setting& row : kSettings) {
    if (std::strcmp(row.name, name) == 0) return row;
  }
  throw Error(ErrorKind::kInternal, std::string("the setting ") + name + " has no row in base/env.cpp");
}

}  // namespace

std::span<const Setting> settings() { return kSettings; }

std::string setting(const char* name) {
  const Setting& row = row_of(name);
  const char* value = std::getenv(name);
  return value && *value ? value : row.default_value;
}

double numeric_setting(const char* name) { return number_of(row_of(name), setting(name)); }

std::chrono::milliseconds seconds_setting(const char* name) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * numeric_setting(name)));
}

std::optional<Error> wrong_setting() {
  for (const Setting& row : kSettings) {
    const std::string type = row.type, value = setting(row.name);
    const auto wrong = [&](const std::string& what) {
      return Error(ErrorKind::kInvalidArgument, std::string(row.name) + "='" + value + "' is " + what);
    };
    try {
      if (is_numeric(row)) number_of(row, value);
    } catch (const Error& error) {
      return error;
    }
    if (type.find('|') == std::string::npos) continue;
    const bool among = ("|" + type + "|").find("|" + value + "|") != std::string::npos;
    if (!among || value.find('|') != std::string::npos) return wrong("none of " + type);
  }
  return std::nullopt;
}

std::vector<std::string> unknown_settings() {
  std::vector<std::string> unknown;
  for (char** entry = environ; *entry; ++entry) {
    if (std::strncmp(*entry, "ALTORCH_", 8) != 0) continue;
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (name.starts_with("ALTORCH_TEST_")) continue;  // the test suite's own
    bool known = false;
    for (const Setting& row : kSettings) known |= name == row.name;
    if (!known) unknown.push_back(name);
  }
  return unknown;
}

}  // namespace altorch
