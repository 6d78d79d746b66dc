// SPDX-License-Identifier: BSD-3-Clause
// The steps of altorch.ops.all_reduce_quantized between collectives, a pack at a time
// (docs/quantized.md). Include after quantized.cuh.

#ifndef __CUDACC__
#include <cmath>
#endif

namespace altorch::kernels {

// A chunk begins with its header.
AL_DEVICE Byte* chunk_of(const QuantizedChunks& job, int chunk) {
  return static_cast<Byte*>(job.chunks) + chunk * job.stride;
}
AL_DEVICE QuantizedPack* packs_of(const QuantizedChunks& job, int chunk) {
  return reinterpret_cast<QuantizedPack*>(chunk_of(job, chunk) + sizeof(QuantizedHeader));
}
// The element that pack `pack` of a chunk begins with.
AL_DEVICE i64 first_of_pack(i64 pack) {
  return pack / kQuantizedPacks * kQuantizedUnit + pack % kQuantizedPacks * 2;
}
AL_DEVICE i64 packs_for(i64 count) { return (count + kQuantizedUnit - 1) / kQuantizedUnit * kQuantizedPacks; }

template <class Number, class Code>
AL_DEVICE QuantizedPack packed(const typename Number::Stored* from, i64 left) {
  using Pairs = QuantizedPairs<typename Number::Stored>;
  QuantizedValues values;
  if (left >= kQuantizedSpan && Pairs::is_aligned(from)) {
    Pairs pairs;
    pairs.load(from);
    values.load<Number>(pairs);
  } else {
    values.load<Number>(from, left);
  }
  return values.pack<Code>();
}

// What thread `thread` of `threads` does.
template <class Number, class Code>
AL_DEVICE void quantize_chunks(const QuantizedChunks& job, i64 thread, i64 threads) {
  const auto* const input = static_cast<const typename Number::Stored*>(job.input);
  for (int chunk = 0; chunk < job.number; ++chunk) {
    if (thread == 0) *reinterpret_cast<QuantizedHeader*>(chunk_of(job, chunk)) = job.header;
    for (i64 pack = thread; pack < packs_for(job.size); pack += threads) {
      const i64 at = chunk * job.size + first_of_pack(pack);
      packs_of(job, chunk)[pack] = packed<Number, Code>(input + at, job.count - at);
    }
  }
}

// Whether all chunks are of the same call.
AL_DEVICE bool headers_agree(const QuantizedChunks& job) {
  const auto* const first = reinterpret_cast<const QuantizedHeader*>(chunk_of(job, 0));
  bool agree = true;
  for (int chunk = 1; chunk < job.number; ++chunk) {
    const auto* const other = reinterpret_cast<const QuantizedHeader*>(chunk_of(job, chunk));
    agree &= other->count == first->count && other->kind == first->kind;
  }
  return agree;
}
// The sum of all chunks; NaN if they are not of the same call, of which a GPU cannot tell the host.
template <class Number, class Code>
AL_DEVICE void sum_chunks(const QuantizedChunks& job, i64 thread, i64 threads) {
  auto* const output = static_cast<typename Number::Stored*>(job.output);
  const float factor = headers_agree(job) ? job.factor : __builtin_bit_cast(float, 0x7FC00000u);
  for (i64 pack = thread; pack < packs_for(job.count); pack += threads) {
    const i64 at = first_of_pack(pack);
    QuantizedValues sum;
    sum.set<Code>(packs_of(job, 0)[pack]);
    for (int chunk = 1; chunk < job.number; ++chunk) sum.add<Code>(packs_of(job, chunk)[pack]);
    sum.multiply(factor);
    sum.store<Number>(output + at, job.count - at);
  }
}
// The values of all chunks, one after the other.
template <class Number, class Code>
AL_DEVICE void dequantize_chunks(const QuantizedChunks& job, i64 thread, i64 threads) {
  for (int chunk = 0; chunk < job.number; ++chunk) {
    QuantizedChunks one = job;
    const i64 left = job.count - chunk * job.size;
    one.chunks = chunk_of(job, chunk);
    one.output = static_cast<typename Number::Stored*>(job.output) + chunk * job.size;
    one.count = left < 0 ? 0 : left < job.size ? left : job.size;
    one.number = 1;
    sum_chunks<Number, Code>(one, thread, threads);
  }
}

template <class Number, class Code>
AL_DEVICE void change_chunks(const QuantizedChunks& job, i64 thread, i64 threads) {
  if (job.step == QuantizedChunks::kQuantize) quantize_chunks<Number, Code>(job, thread, threads);
  if (job.step == QuantizedChunks::kSum) sum_chunks<Number, Code>(job, thread, threads);
  if (job.step == QuantizedChunks::kDequantize) dequantize_chunks<Number, Code>(job, thread, threads);
}

#ifdef __CUDACC__
template <class Number, class Code>
AL_DEVICE void run_quantized_chunks(const QuantizedChunks& job) {
  change_chunks<Number, Code>(job, blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x,
                              gridDim.x * static_cast<i64>(blockDim.x));
}
#endif

}  // namespace altorch::kernels
