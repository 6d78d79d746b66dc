// The kernels of small exchanges, run by the fake device: the very source that NVRTC compiles, as one thread.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>

#define AL_PAUSE() std::this_thread::yield()
// In the order in which they go to NVRTC.
// clang-format off
#include "device/kernels/numbers.cuh"
#include "device/kernels/small.cuh"
#include "device/kernels/pairs.cuh"
#include "device/kernels/poison.cuh"
// clang-format on
#include "support/fake_device.h"

namespace altorch {
namespace {

static_assert(sizeof(kernels::Small) == sizeof(SmallExchange));
static_assert(offsetof(kernels::Small, aborted) == offsetof(SmallExchange, aborted));
static_assert(offsetof(kernels::Small, wanted) == offsetof(SmallExchange, wanted));
static_assert(offsetof(kernels::Small, number) == offsetof(SmallExchange, number));
static_assert(offsetof(kernels::Small, factor) == offsetof(SmallExchange, factor));
static_assert(offsetof(kernels::Small, poison) == offsetof(SmallExchange, poison));
static_assert(offsetof(kernels::Pairs, poison) == offsetof(PairExchange, poison));
static_assert(sizeof(kernels::Poison) == sizeof(PoisonJob));
static_assert(offsetof(kernels::Poison, given_up) == offsetof(PoisonJob, given_up));
static_assert(sizeof(kernels::Pairs) == sizeof(PairExchange));
static_assert(offsetof(kernels::Pairs::Pair, exchange) == offsetof(PairExchange::Pair, exchange));
static_assert(offsetof(kernels::Pairs, number) == offsetof(PairExchange, number));

kernels::Small as_kernels_see(const SmallExchange& exchange) {
  kernels::Small job;
  std::memcpy(&job, &exchange, sizeof job);
  return job;
}

// As many blocks as a GPU would use for more than a few elements, one after another.
constexpr int kBlocks = 2;

template <class Number>
void reduce_numbers(const kernels::Small& job, ReduceOp op) {
  using Computed = typename Number::Computed;
  constexpr bool is_bool = std::is_same_v<Number, kernels::Bool>;
  constexpr bool is_ordered = std::is_arithmetic_v<Computed>;
  // Blocks run side by side on a GPU: here each posts before any waits.
  const auto run = [&]<class Operator, bool kMean>() {
    for (int block = 0; block < kBlocks; ++block) kernels::post<Number>(job, block, kBlocks);
    for (int block = 0; block < kBlocks; ++block)
      kernels::reduce_small<Number, Operator, kMean>(job, block, kBlocks);
  };
  if constexpr (is_bool) {
    return run.template operator()<kernels::Or, false>();
  } else {
    if (op == ReduceOp::kAvg) return run.template operator()<kernels::Sum, true>();
    if (op == ReduceOp::kProduct) return run.template operator()<kernels::Product, false>();
    if constexpr (is_ordered) {
      if (op == ReduceOp::kMax) return run.template operator()<kernels::Max, false>();
      if (op == ReduceOp::kMin) return run.template operator()<kernels::Min, false>();
    }
    if constexpr (std::is_integral_v<Computed>) {
      if (op == ReduceOp::kBxor) return run.template operator()<kernels::Xor, false>();
    }
    return run.template operator()<kernels::Sum, false>();
  }
}

void reduce_any(const kernels::Small& job, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kUInt8:
      return reduce_numbers<kernels::Integer<unsigned char, unsigned>>(job, op);
    case DType::kInt8:
      return reduce_numbers<kernels::Integer<signed char, unsigned>>(job, op);
    case DType::kUInt16:
      return reduce_numbers<kernels::Integer<unsigned short, unsigned>>(job, op);
    case DType::kInt16:
      return reduce_numbers<kernels::Integer<short, unsigned>>(job, op);
    case DType::kUInt32:
      return reduce_numbers<kernels::Integer<unsigned, unsigned>>(job, op);
    case DType::kInt32:
      return reduce_numbers<kernels::Integer<int, unsigned>>(job, op);
    case DType::kUInt64:
      return reduce_numbers<kernels::Integer<unsigned long long, unsigned long long>>(job, op);
    case DType::kInt64:
      return reduce_numbers<kernels::Integer<long long, unsigned long long>>(job, op);
    case DType::kBool:
      return reduce_numbers<kernels::Bool>(job, op);
    case DType::kFloat16:
      return reduce_numbers<kernels::Float16>(job, op);
    case DType::kBFloat16:
      return reduce_numbers<kernels::BFloat16>(job, op);
    case DType::kFloat32:
      return reduce_numbers<kernels::Plain<float>>(job, op);
    case DType::kFloat64:
      return reduce_numbers<kernels::Plain<double>>(job, op);
    case DType::kComplex64:
      return reduce_numbers<kernels::Complex<float>>(job, op);
    case DType::kComplex128:
      return reduce_numbers<kernels::Complex<double>>(job, op);
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat8E8M0FNU:
      std::abort();  // no kernel reduces them
  }
}

}  // namespace

void FakeDevice::reduce_small(const SmallExchange& exchange, DType dtype, ReduceOp op, Stream stream) {
  launch([job = as_kernels_see(exchange), dtype, op] { reduce_any(job, dtype, op); }, stream);
}

void FakeDevice::move_small(const SmallExchange& exchange, Stream stream) {
  launch(
      [job = as_kernels_see(exchange)] {
        for (int block = 0; block < kBlocks; ++block)
          kernels::post<kernels::Plain<unsigned char>>(job, block, kBlocks);
        for (int block = 0; block < kBlocks; ++block) kernels::move_small(job, block, kBlocks);
      },
      stream);
}

void FakeDevice::exchange_pairs(const PairExchange& exchange, Stream stream) {
  kernels::Pairs job;
  std::memcpy(&job, &exchange, sizeof job);
  launch(
      [job] {
        for (int block = 0; block < kBlocks; ++block) {
          for (int i = 0; i < job.number; ++i) {
            const kernels::Pairs::Pair& pair = job.pairs[i];
            pair.exchange ? kernels::post_pair(pair, block, kBlocks)
                          : kernels::copy_own(pair, block, kBlocks);
          }
        }
        for (int block = 0; block < kBlocks; ++block) {
          for (int i = 0; i < job.number; ++i) {
            if (job.pairs[i].exchange) kernels::take_pair(job, job.pairs[i], block, kBlocks);
          }
        }
      },
      stream);
}

void FakeDevice::poison(const PoisonJob& given, Stream stream) {
  ++poisons_;
  kernels::Poison job;
  std::memcpy(&job, &given, sizeof job);
  launch(
      [job] {
        if (!kernels::is_set(job.given_up)) return;
        for (int block = 0; block < kBlocks; ++block) kernels::overwrite(job, block, kBlocks);
      },
      stream);
}

}  // namespace altorch
