// SPDX-License-Identifier: BSD-3-Clause
// Bytes a second of every reduction kernel, beside memcpy of as many bytes on the same core in the
// same run.
//
//   speed <bytes, comma separated> <dtypes, comma separated, or all>
//
// One JSON line per instruction set, type, operator and size. `bytes` are those of one operand; a
// reduction reads two and writes one, memcpy reads one and writes one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "reduction/kernel_table.h"

namespace {

using altorch::DType;
using altorch::ReduceOp;
using Clock = std::chrono::steady_clock;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kBand};
constexpr double kBatchSeconds = 0.0005;
constexpr int kBatches = 21;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

// The 10th percentile over batches, in seconds a call.
template <class Call>
double time_call(Call call) {
  const auto seconds_of = [&](long calls) {
    const auto begin = Clock::now();
    for (long i = 0; i < calls; ++i) call();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  call();
  const double once = std::max(seconds_of(3) / 3, 1e-9);
  const long calls = std::max(1L, static_cast<long>(kBatchSeconds / once));
  std::vector<double> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(seconds_of(calls) / static_cast<double>(calls));
  std::sort(batches.begin(), batches.end());
  return batches[kBatches / 10];
}

void print(const char* set, const char* dtype, const char* op, std::size_t bytes, double seconds) {
  std::printf(
      "{\"benchmark\": \"reduction\", \"set\": \"%s\", \"dtype\": \"%s\", \"op\": \"%s\", \"bytes\": %zu, "
      "\"ns\": %.2f, \"operand_gb_per_s\": %.3f}\n",
      set, dtype, op, bytes, seconds * 1e9, static_cast<double>(bytes) / seconds * 1e-9);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: speed <bytes,...> <dtypes,...|all>\n");
    return 2;
  }
  const auto wanted = split(argv[2]);
  for (const std::string& size : split(argv[1])) {
    const std::size_t bytes = std::strtoull(size.c_str(), nullptr, 10);
    std::vector<char> a(bytes, 1), b(bytes, 1), out(bytes, 1);
    print("memcpy", "", "", bytes, time_call([&] {
            std::memcpy(out.data(), a.data(), bytes);
            asm volatile("" ::"r"(out.data()) : "memory");
          }));
    for (const auto* table : altorch::reduction::usable_kernel_tables()) {
      for (int type = 0; type < altorch::kDTypeCount; ++type) {
        const auto dtype = static_cast<DType>(type);
        if (wanted[0] != "all" && std::find(wanted.begin(), wanted.end(), name_of(dtype)) == wanted.end())
          continue;
        for (ReduceOp op : kOps) {
          const auto kernel = table->reduce[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
          if (kernel == nullptr) continue;
          const std::size_t count = bytes / size_of(dtype);
          if (count == 0) continue;
          // In place, as collectives reduce.
          print(table->name, name_of(dtype), name_of(op), bytes,
                time_call([&] { kernel(a.data(), b.data(), a.data(), count); }));
        }
      }
    }
  }
}
