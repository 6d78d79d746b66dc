// SPDX-License-Identifier: BSD-3-Clause
// One-sided access to memory of other ranks' GPUs, and the signals that announce it. Include after
// ll.cuh.
//
// Only a wait for a signal waits for another rank. The device counts signals and waits, so that a
// captured call can be replayed. A signal adds 1 to a number in the memory of the waiting rank. If
// atomic operations do not reach that memory, it stores how often it has signalled there. A wait
// counts how many signals it has taken. Several streams of one rank may do so at the same time.

namespace altorch::kernels {

#ifdef __CUDACC__
AL_DEVICE void fence() { __threadfence_system(); }
AL_DEVICE unsigned peek(const unsigned* word) { return *static_cast<const volatile unsigned*>(word); }
AL_DEVICE void show(unsigned* word, unsigned value) { *static_cast<volatile unsigned*>(word) = value; }
AL_DEVICE unsigned swapped(unsigned* at, unsigned expected, unsigned wanted) {
  return atomicCAS_system(at, expected, wanted);
}
AL_DEVICE u64 swapped(u64* at, u64 expected, u64 wanted) { return atomicCAS_system(at, expected, wanted); }
AL_DEVICE u64 peek(const u64* word) { return load_word(word); }
AL_DEVICE unsigned added(unsigned* at, unsigned value) { return atomicAdd(at, value); }
AL_DEVICE void raised_by_one(unsigned* at) { atomicAdd_system(at, 1u); }
AL_DEVICE void fence_on_device() { __threadfence(); }
AL_DEVICE i64 linear_thread() { return blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; }
AL_DEVICE i64 all_threads() { return gridDim.x * static_cast<i64>(blockDim.x); }
#else
AL_DEVICE void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
template <class Word>
AL_DEVICE Word peek(const Word* word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
AL_DEVICE void show(unsigned* word, unsigned value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
template <class Word>
AL_DEVICE Word swapped(Word* at, Word expected, Word wanted) {
  __atomic_compare_exchange_n(at, &expected, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}
AL_DEVICE unsigned added(unsigned* at, unsigned value) {
  return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);
}
AL_DEVICE void raised_by_one(unsigned* at) { added(at, 1); }
AL_DEVICE void fence_on_device() { fence(); }
AL_DEVICE i64 linear_thread() { return 0; }
AL_DEVICE i64 all_threads() { return 1; }
#endif

// Adds 1 to the count, and stores the new number in `shown`. The lock keeps the stores in order: a
// lower number after a higher one would lose a signal. All threads that raise one count run on one
// device. `publishes`: a thread that sees the new number also sees what was written before.
AL_DEVICE void count_up(WindowCount* count, unsigned* shown, bool publishes) {
  while (swapped(&count->raising, 0u, 1u) != 0) AL_PAUSE();
  if (publishes) {
    fence();  // after the lock: what earlier threads have published is seen, too
  } else {
    fence_on_device();
  }
  const unsigned number = peek(&count->number) + 1;
  show(&count->number, number);
  show(shown, number);
  fence_on_device();
  show(&count->raising, 0);
}
AL_DEVICE void tell(WindowCount* count, unsigned* shown) { count_up(count, shown, /*publishes=*/false); }
AL_DEVICE void raise(WindowCount* count, unsigned* shown) {
  if (count) return count_up(count, shown, /*publishes=*/true);
  fence();
  raised_by_one(shown);
}

template <class Unit>
AL_DEVICE void move_units(const WindowMove& job, i64 thread, i64 threads) {
  const i64 units = job.row_bytes / static_cast<i64>(sizeof(Unit)),
            rest = job.row_bytes % static_cast<i64>(sizeof(Unit)), each = units + rest;
  for (i64 at = thread; at < each * job.rows; at += threads) {
    const i64 row = job.rows == 1 ? 0 : at / each, column = at - row * each;
    const unsigned char* from = static_cast<const unsigned char*>(job.from) + row * job.from_stride;
    unsigned char* to = static_cast<unsigned char*>(job.to) + row * job.to_stride;
    if (column < units) {
      reinterpret_cast<Unit*>(to)[column] = reinterpret_cast<const Unit*>(from)[column];
    } else {
      const i64 byte = units * static_cast<i64>(sizeof(Unit)) + column - units;
      to[byte] = from[byte];
    }
  }
}

AL_DEVICE void window_move(const WindowMove& job, i64 thread, i64 threads) {
  u64 places =
      reinterpret_cast<u64>(job.from) | reinterpret_cast<u64>(job.to);
  if (job.rows > 1) places |= static_cast<u64>(job.from_stride | job.to_stride);
  if (places % 16 == 0) return move_units<Pack<unsigned>>(job, thread, threads);
  if (places % 4 == 0) return move_units<unsigned>(job, thread, threads);
  move_units<unsigned char>(job, thread, threads);
}

// A wait reports its beginning only after so many polls, because a report costs as much as a
// signal.
constexpr unsigned kSoon = 128;  // polls

struct WindowWaited {
  bool there;  // false: the wait was aborted
  bool told;   // whether the beginning was reported
};

AL_DEVICE WindowWaited await_signal(const WindowWait& job) {
  const unsigned least = added(&job.taken->number, 1) + 1;
  WindowWaited waited{true, false};
  for (unsigned looks = 1; static_cast<int>(peek(job.raised) - least) < 0; ++looks) {
    if (looks >= kSoon && job.begun && !waited.told) {
      tell(job.begun, job.tells_begun);
      waited.told = true;
    }
    if (looks % 1024 == 0 && is_set(job.aborted)) {
      waited.there = false;
      break;
    }
    AL_PAUSE();
  }
  fence();
  return waited;
}

AL_DEVICE void end_wait(const WindowWait& job, const WindowWaited& waited) {
  if (!job.begun || waited.told) tell(job.done, job.tells_done);
}

// Changes one element atomically, and no other element in the same word.
template <class Stored, class Change>
AL_DEVICE void change_element(Stored* at, const Change& change) {
  if constexpr (sizeof(Stored) > sizeof(unsigned)) {
    auto* const word = reinterpret_cast<u64*>(at);
    for (u64 seen = peek(word);;) {
      const auto wanted = __builtin_bit_cast(u64, change(__builtin_bit_cast(Stored, seen)));
      const auto found = swapped(word, seen, wanted);
      if (found == seen) return;
      seen = found;
    }
  } else {
    constexpr u64 kWord = sizeof(unsigned);
    const auto address = reinterpret_cast<u64>(at), within = address % kWord;
    auto* const word = reinterpret_cast<unsigned*>(address - within);
    for (unsigned seen = peek(word);;) {
      union {
        unsigned word;
        Stored elements[kWord / sizeof(Stored)];
      } both;
      both.word = seen;
      Stored& element = both.elements[within / sizeof(Stored)];
      element = change(element);
      const unsigned found = swapped(word, seen, both.word);
      if (found == seen) return;
      seen = found;
    }
  }
}

template <class Number, class Operator>
AL_DEVICE void window_update(const WindowUpdate& job, i64 thread, i64 threads) {
  using Stored = typename Number::Stored;
  for (i64 at = thread; at < job.row * job.rows; at += threads) {
    const i64 row = job.rows == 1 ? 0 : at / job.row;
    const auto mine = Number::widen(static_cast<const Stored*>(job.from)[at]);
    Stored* const theirs = static_cast<Stored*>(job.to) + row * job.stride + (at - row * job.row);
    change_element(theirs, [&](Stored there) {
      return Number::narrow(Operator::template apply<Number>(Number::widen(there), mine));
    });
  }
}

template <class Word>
AL_DEVICE void window_number(const WindowNumber& job) {
  Word before{};
  change_element(static_cast<Word*>(job.at), [&](Word there) {
    before = there;
    using Wrapping = u64;
    if (job.adds) return static_cast<Word>(static_cast<Wrapping>(there) + static_cast<Wrapping>(job.operand));
    return there == static_cast<Word>(job.expected) ? static_cast<Word>(job.operand) : there;
  });
  *job.found = before;
}

AL_DEVICE void window_number(const WindowNumber& job) {
  if (!is_set(job.ended)) {
    if (job.bytes == 4) {
      window_number<int>(job);
    } else {
      window_number<i64>(job);
    }
  }
  fence();
  show(job.answered, 1);
}

#ifdef __CUDACC__
// A move with a signal runs in one thread block, so that all its data is stored before the signal.
AL_DEVICE void run_window_move(const WindowMove& job) {
  AL_LAUNCH_DEPENDENTS();
  if (is_set(job.ended)) return;
  window_move(job, linear_thread(), all_threads());
  if (!job.raised) return;
  __syncthreads();
  if (threadIdx.x == 0) raise(job.count, job.raised);
}
AL_DEVICE void run_window_wait(const WindowWait& job) {
  __shared__ bool there;
  WindowWaited waited{};
  if (threadIdx.x == 0) {
    waited = await_signal(job);
    there = waited.there;
  }
  __syncthreads();
  AL_LAUNCH_DEPENDENTS();
  if (!there) overwrite({job.data, job.bytes, job.pattern, nullptr}, 0, 1);
  __syncthreads();
  if (threadIdx.x == 0) end_wait(job, waited);
}
template <class Number, class Operator, bool>
AL_DEVICE void run_window_update(const WindowUpdate& job) {
  if (!is_set(job.ended)) window_update<Number, Operator>(job, linear_thread(), all_threads());
}
// The smallest launch is a warp, and only one thread has work.
AL_DEVICE void run_window_number(const WindowNumber& job) {
  if (threadIdx.x == 0) window_number(job);
}
#endif

}  // namespace altorch::kernels
