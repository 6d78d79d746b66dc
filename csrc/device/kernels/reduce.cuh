// SPDX-License-Identifier: BSD-3-Clause
// Reduces parts that lie in device and pinned memory, in the order of the ranks, in one pass: every part is
// read once, half types stay float32 in between. After numbers.cuh.

namespace altorch::kernels {

// As DeviceReduction in device/device.h.
struct Reduction {
  const void* parts[64];
  int number;
  void* output;
  void* copy;
  long long count;
  int scaled;
  double factor;
};

// Several elements that move as one: 16 bytes at a time keep enough reads of host memory in flight.
template <class Stored>
struct alignas(16) Pack {
  static constexpr int kLength = 16 / sizeof(Stored);
  Stored elements[kLength];
};

template <class Number, class Operator, bool kMean, class Group>
AL_DEVICE void reduce_group(const Reduction& job, long long at) {
  using Computed = typename Number::Computed;
  using Stored = typename Number::Stored;
  constexpr int kLength = sizeof(Group) / sizeof(Stored);
  Computed sum[kLength]{};
  for (int part = 0; part < job.number; ++part) {
    const Group group = static_cast<const Group*>(job.parts[part])[at];
    const Stored* elements = reinterpret_cast<const Stored*>(&group);
    for (int i = 0; i < kLength; ++i) {
      Computed value = Number::widen(elements[i]);
      if constexpr (requires { Number::scale(value, 1.0); }) {
        if (part == job.scaled) value = Number::scale(value, job.factor);
      }
      sum[i] = part == 0 ? value : Operator::template apply<Number>(sum[i], value);
    }
  }
  Group result;
  Stored* elements = reinterpret_cast<Stored*>(&result);
  for (int i = 0; i < kLength; ++i) {
    if constexpr (kMean) sum[i] = Number::mean(sum[i], job.number);
    elements[i] = Number::narrow(sum[i]);
  }
  if (job.output) static_cast<Group*>(job.output)[at] = result;
  if (job.copy) static_cast<Group*>(job.copy)[at] = result;
}

// What thread `thread` of `threads` does.
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_strided(const Reduction& job, long long thread, long long threads) {
  using Stored = typename Number::Stored;
  using Vector = Pack<Stored>;
  unsigned long long addresses =
      reinterpret_cast<unsigned long long>(job.output) | reinterpret_cast<unsigned long long>(job.copy);
  for (int part = 0; part < job.number; ++part)
    addresses |= reinterpret_cast<unsigned long long>(job.parts[part]);
  const long long packs = addresses % 16 == 0 ? job.count / Vector::kLength : 0;
  for (long long at = thread; at < packs; at += threads)
    reduce_group<Number, Operator, kMean, Vector>(job, at);
  for (long long at = packs * Vector::kLength + thread; at < job.count; at += threads)
    reduce_group<Number, Operator, kMean, Stored>(job, at);
}

#ifdef __CUDACC__
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_reduce(const Reduction& job) {
  reduce_strided<Number, Operator, kMean>(job, blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x,
                                          gridDim.x * static_cast<long long>(blockDim.x));
}
#endif

}  // namespace altorch::kernels
