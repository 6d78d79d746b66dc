// SPDX-License-Identifier: BSD-3-Clause
// Reduces parts that lie in device and pinned memory, in the order of the ranks, in one pass: every
// part is read once, half types stay float32 in between. After exact.cuh.

namespace altorch::kernels {

// Several elements that move as one: 16 bytes at a time keep enough reads of host memory in flight.
template <class Stored>
struct alignas(16) Pack {
  static constexpr int kLength = 16 / sizeof(Stored);
  Stored elements[kLength];
};

template <class Number, class Operator, bool kMean, class Group>
AL_DEVICE void reduce_group(const DeviceReduction& job, i64 at) {
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
  for (int i = 0; i < kLength; ++i)
    elements[i] = finalize<Number, kMean>(sum[i], job.number, [&job, at, i](int part) {
      return static_cast<const Stored*>(job.parts[part])[at * kLength + i];
    });
  if (job.output) static_cast<Group*>(job.output)[at] = result;
  if (job.copy) static_cast<Group*>(job.copy)[at] = result;
}

// What thread `thread` of `threads` does.
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_strided(const DeviceReduction& job, i64 thread, i64 threads) {
  using Stored = typename Number::Stored;
  using Vector = Pack<Stored>;
  u64 addresses =
      reinterpret_cast<u64>(job.output) | reinterpret_cast<u64>(job.copy);
  for (int part = 0; part < job.number; ++part)
    addresses |= reinterpret_cast<u64>(job.parts[part]);
  const i64 packs = addresses % 16 == 0 ? job.count / Vector::kLength : 0;
  for (i64 at = thread; at < packs; at += threads)
    reduce_group<Number, Operator, kMean, Vector>(job, at);
  for (i64 at = packs * Vector::kLength + thread; at < job.count; at += threads)
    reduce_group<Number, Operator, kMean, Stored>(job, at);
}

#ifdef __CUDACC__
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_reduce(const DeviceReduction& job) {
  reduce_strided<Number, Operator, kMean>(job, blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x,
                                          gridDim.x * static_cast<i64>(blockDim.x));
}
#endif

}  // namespace altorch::kernels
