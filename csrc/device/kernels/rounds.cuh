// SPDX-License-Identifier: BSD-3-Clause
// Rounds in which a kernel pushes data into the memory of other ranks' GPUs, and pulls what they
// have pushed: flags, slots, chunks. one_shot.cuh and exchange.cuh use them; two_shot.cuh has
// rounds of its own. Include after reduce.cuh, ll.cuh and poison.cuh.
//
// Each thread block has slots and flags of its own, and exchanges rounds with the block of the same
// index on other ranks. Some blocks push and some pull, so that both directions are busy all the
// time. There are four slots, used in turn. One set of flags says which rounds have arrived, a
// second set which rounds have been pulled.
//
// Abort is sticky: a flag raised after an abort could be matched with the aborted call.

namespace altorch::kernels {

// Rounds are counted, and every fourth one uses the same slot, also when the counter wraps. A block
// that has aborted stores this in place of its last number.
constexpr unsigned kAborted = 0xFFFFFFFFu;
AL_DEVICE unsigned next_round(unsigned last) { return last == 0xFFFFFFFBu ? 0 : last + 1; }
AL_DEVICE unsigned fourth_before(unsigned round) { return round <= 3 ? round - 8 : round - 4; }

AL_DEVICE void raise_flag(unsigned* flag, unsigned number) {
#ifdef __CUDACC__
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(number) : "memory");
#else
  __atomic_store_n(flag, number, __ATOMIC_RELEASE);
#endif
}

// Returns false if the call was aborted. `aborted` is null where the same kernel raises the flag in
// any case.
AL_DEVICE bool await_flag(const unsigned* flag, unsigned number, const unsigned* aborted) {
  for (int polls = 1;; ++polls) {
#ifdef __CUDACC__
    unsigned found;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");
#else
    const unsigned found = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
#endif
    if (static_cast<int>(found - number) >= 0) return true;
    if (polls % 1024 == 0 && aborted && is_set(aborted)) return false;
    AL_PAUSE();
  }
}

template <class Unit>
AL_DEVICE void copy_units(void* to, const void* from, i64 begin, i64 end) {
  constexpr int kAtOnce = 8;  // loads of a thread under way
  const Unit* source = static_cast<const Unit*>(from);
  Unit* target = static_cast<Unit*>(to);
  i64 at = begin + AL_THREAD;
  for (; at + (kAtOnce - 1) * AL_THREADS < end; at += kAtOnce * AL_THREADS) {
    Unit held[kAtOnce];
    AL_UNROLL for (int i = 0; i < kAtOnce; ++i) held[i] = source[at + i * AL_THREADS];
    AL_UNROLL for (int i = 0; i < kAtOnce; ++i) target[at + i * AL_THREADS] = held[i];
  }
  for (; at < end; at += AL_THREADS) target[at] = source[at];
}

// By all threads of a block.
AL_DEVICE void copy_bytes(void* to, const void* from, i64 bytes) {
  const auto addresses = reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from);
  i64 wide = 0;
  if (addresses % 16 == 0) {
    copy_units<Pack<unsigned char>>(to, from, 0, (wide = bytes / 16 * 16) / 16);
  } else if (addresses % 4 == 0) {
    copy_units<unsigned>(to, from, 0, (wide = bytes / 4 * 4) / 4);
  } else if (addresses % 2 == 0) {
    copy_units<unsigned short>(to, from, 0, (wide = bytes / 2 * 2) / 2);
  }
  copy_units<unsigned char>(to, from, wide, bytes);
}

// Called by all threads of a block. Raises this rank's flag at each of the ranks first to behind -
// 1, after all that the block has stored. Skips a rank that has no flag.
AL_DEVICE void tell(const BulkSlots& slots, i64 flag, unsigned number, int first, int behind) {
  AL_SYNCHRONIZE();
  for (int rank = first + static_cast<int>(AL_THREAD); rank < behind; rank += static_cast<int>(AL_THREADS))
    if (slots.raised[rank]) raise_flag(slots.raised[rank] + flag, number);
}
// Waits for the flags of these ranks. Returns false if the call was aborted.
AL_DEVICE bool await(const BulkSlots& slots, i64 flag, unsigned number, int first, int behind) {
  bool here = true;
  for (int rank = first + static_cast<int>(AL_THREAD); here && rank < behind; rank += static_cast<int>(AL_THREADS))
    if (slots.awaited[rank]) here = await_flag(slots.awaited[rank] + flag, number, slots.aborted);
  return AL_ALL(here);
}

// The offset of a block's slot for a round.
AL_DEVICE i64 slot_at(const BulkSlots& slots, i64 block, unsigned number) {
  return (number % 4 * slots.blocks + block) * slots.part;
}

// Runs the rounds in which a block pushes to the ranks first to behind - 1. Calls push(round,
// offset of the slot), with rounds from 0. Returns the number of the last round, or kAborted if the
// call was aborted.
template <class Push>
AL_DEVICE unsigned push_rounds(const BulkSlots& slots, i64 block, unsigned number, i64 rounds, int first,
                               int behind, const Push& push) {
  for (i64 round = 0; round < rounds; ++round) {
    const unsigned next = next_round(number);
    if (number == kAborted || !await(slots, slots.blocks + block, fourth_before(next), first, behind)) return kAborted;
    number = next;
    push(round, slot_at(slots, block, number));
    tell(slots, block, number, first, behind);
  }
  return number;
}
// As push_rounds(), for the rounds in which the block pulls from these ranks. `taken`: how many
// rounds were pulled.
template <class Take>
AL_DEVICE unsigned take_rounds(const BulkSlots& slots, i64 block, unsigned number, i64 rounds, int first,
                               int behind, i64& taken, const Take& take) {
  for (taken = 0; taken < rounds; ++taken) {
    const unsigned next = next_round(number);
    if (number == kAborted || !await(slots, block, next, first, behind)) return kAborted;
    number = next;
    take(taken, slot_at(slots, block, number));
    tell(slots, slots.blocks + block, number, first, behind);
  }
  return number;
}
// After everything that the threads of the block do.
AL_DEVICE void keep_number(unsigned* at, unsigned number) {
  AL_LAUNCH_DEPENDENTS();
  AL_SYNCHRONIZE();
  if (AL_THREAD == 0) *at = number;
}

// Data that is divided into chunks. Chunk i belongs to thread block i % blocks.
struct Chunks {
  i64 all, chunk, block, blocks;
};
AL_DEVICE i64 rounds_of(const Chunks& chunks) {
  const i64 left = chunks.all - chunks.block * chunks.chunk, step = chunks.blocks * chunks.chunk;
  return left <= 0 ? 0 : (left + step - 1) / step;
}
AL_DEVICE i64 begin_of(const Chunks& chunks, i64 round) {
  return (chunks.block + round * chunks.blocks) * chunks.chunk;
}
AL_DEVICE i64 length_of(const Chunks& chunks, i64 round) {
  const i64 left = chunks.all - begin_of(chunks, round);
  return left < 0 ? 0 : left < chunks.chunk ? left : chunks.chunk;
}

}  // namespace altorch::kernels
