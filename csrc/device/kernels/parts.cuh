// SPDX-License-Identifier: BSD-3-Clause
// Reduces the parts of all ranks, in the order of the ranks. Include after rounds.cuh.

namespace altorch::kernels {

// Where the threads of a block find the parts of a share, and where they store the result.
struct ShareJob {
  const void* parts[16];
  void* results[16];
  int number, results_number, own, scaled;
  double factor;
};

// Fills in everything but parts and results. Called by one thread of the block.
template <class Job>
AL_DEVICE void begin_share(ShareJob& share, const Job& job) {
  share.number = job.slots.number;
  share.own = job.slots.rank;
  share.scaled = job.scaled;
  share.factor = job.factor;
  share.results_number = 0;
}

// Reduces kAtOnce groups of elements, from `at` on, `stride` apart. Their loads are in flight at
// once.
template <class Number, class Operator, bool kMean, class Group, int kAtOnce>
AL_DEVICE void reduce_groups(const ShareJob& job, i64 at, i64 stride) {
  using Stored = typename Number::Stored;
  constexpr int kLength = sizeof(Group) / sizeof(Stored);
  constexpr int kParts = 2;  // whose loads are under way together, too
  typename Number::Computed sum[kAtOnce][kLength]{};
  for (int first = 0; first < job.number; first += kParts) {
    Group groups[kParts][kAtOnce];
    AL_UNROLL for (int part = 0; part < kParts; ++part) {
      const int there = first + part < job.number ? first + part : first;  // the last one twice
      const Group* from = static_cast<const Group*>(job.parts[there]) + at;
      AL_UNROLL for (int turn = 0; turn < kAtOnce; ++turn) groups[part][turn] = from[turn * stride];
    }
    AL_UNROLL for (int part = 0; part < kParts; ++part) {
      if (first + part >= job.number) break;
      AL_UNROLL for (int turn = 0; turn < kAtOnce; ++turn) {
        const Stored* elements = reinterpret_cast<const Stored*>(&groups[part][turn]);
        AL_UNROLL for (int i = 0; i < kLength; ++i) {
          typename Number::Computed value = Number::widen(elements[i]);
          if constexpr (requires { Number::scale(value, 1.0); }) {
            // Narrowed as what the others have sent.
            if (first + part == job.own && job.scaled)
              value = Number::widen(Number::narrow(Number::scale(value, job.factor)));
          }
          sum[turn][i] = first + part == 0 ? value : Operator::template apply<Number>(sum[turn][i], value);
        }
      }
    }
  }
  AL_UNROLL for (int turn = 0; turn < kAtOnce; ++turn) {
    Group result;
    Stored* elements = reinterpret_cast<Stored*>(&result);
    AL_UNROLL for (int i = 0; i < kLength; ++i)
      elements[i] = finalize<Number, kMean>(sum[turn][i], job.number, [&job, at, stride, turn, i](int part) {
        return static_cast<const Stored*>(job.parts[part])[(at + turn * stride) * kLength + i];
      });
    for (int i = 0; i < job.results_number; ++i) static_cast<Group*>(job.results[i])[at + turn * stride] = result;
  }
}

// In place, too: a thread writes the elements that it has read itself.
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_share(const ShareJob& job, i64 count) {
  if constexpr (requires { typename Number::OfTwo; }) {
    if (job.number == 2) return reduce_share<typename Number::OfTwo, Operator, kMean>(job, count);
  }
  using Stored = typename Number::Stored;
  using Vector = Pack<Stored>;
  constexpr int kAtOnce = sizeof(Stored) == 1 ? 1 : 2;  // as many sums as registers hold
  u64 addresses = 0;
  for (int i = 0; i < job.number; ++i) addresses |= reinterpret_cast<u64>(job.parts[i]);
  for (int i = 0; i < job.results_number; ++i) addresses |= reinterpret_cast<u64>(job.results[i]);
  const i64 packs = addresses % 16 == 0 ? count / Vector::kLength : 0;
  i64 at = AL_THREAD;
  for (; at + (kAtOnce - 1) * AL_THREADS < packs; at += kAtOnce * AL_THREADS)
    reduce_groups<Number, Operator, kMean, Vector, kAtOnce>(job, at, AL_THREADS);
  for (; at < packs; at += AL_THREADS) reduce_groups<Number, Operator, kMean, Vector, 1>(job, at, 0);
  for (at = packs * Vector::kLength + AL_THREAD; at < count; at += AL_THREADS)
    reduce_groups<Number, Operator, kMean, Stored, 1>(job, at, 0);
}

// Pushes elements of this rank's vector, scaled if the call asks for it.
template <class Number, class Job>
AL_DEVICE void push_part(const Job& job, void* to, i64 begin, i64 count) {
  using Stored = typename Number::Stored;
  const Stored* from = static_cast<const Stored*>(job.input) + begin;
  if constexpr (requires(typename Number::Computed value) { Number::scale(value, 1.0); }) {
    for (i64 at = AL_THREAD; job.scaled && at < count; at += AL_THREADS)
      static_cast<Stored*>(to)[at] = Number::narrow(Number::scale(Number::widen(from[at]), job.factor));
    if (job.scaled) return;
  }
  copy_bytes(to, from, count * static_cast<i64>(sizeof(Stored)));
}

// Overwrites elements of the result that will not arrive with the poison pattern.
template <class Number, class Job>
AL_DEVICE void poison_part(const Job& job, i64 begin, i64 count) {
  using Stored = typename Number::Stored;
  overwrite({static_cast<Stored*>(job.output) + begin, count * static_cast<i64>(sizeof(Stored)), job.poison, nullptr},
            0, 1);
}

}  // namespace altorch::kernels
