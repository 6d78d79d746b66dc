// SPDX-License-Identifier: BSD-3-Clause
// Pairwise exchange of blocks of any size, for collectives that move data and for messages. Include
// after rounds.cuh.

namespace altorch::kernels {

// The counters of a thread block for one peer: rounds pushed, rounds pulled; and for an exchange in
// place, rounds read and rounds overwritten.
enum ExchangeCount { kExchangeSent, kExchangeTaken, kExchangeRead, kExchangeOverwritten };
AL_DEVICE unsigned* exchange_count(const BulkSlots& slots, ExchangeCount what, int peer, i64 block) {
  return slots.numbers + (static_cast<i64>(what) * slots.number + peer) * slots.blocks + block;
}

// One thread block, one peer. A message does not wait for its receiver while the receiver's slots
// have room.
AL_DEVICE void push_exchange(const Exchange& job, int peer, i64 block) {
  const BulkSlots& slots = job.slots;
  const auto* input = static_cast<const unsigned char*>(job.input[peer]);
  const Chunks chunks = {job.sent[peer], job.chunk_sent[peer], block, job.blocks_sent[peer]};
  unsigned* const last = exchange_count(slots, kExchangeSent, peer, block);
  unsigned* const read = exchange_count(slots, kExchangeRead, peer, block);
  const unsigned before = *read;
  const unsigned number = push_rounds(
      slots, block, *last, rounds_of(chunks), peer, peer + 1, [&](i64 round, i64 slot) {
        copy_bytes(slots.theirs[peer] + slot, input + begin_of(chunks, round), length_of(chunks, round));
        if (!job.in_place[peer]) return;
        AL_SYNCHRONIZE();
        if (AL_THREAD == 0) raise_flag(read, before + static_cast<unsigned>(round) + 1);
      });
  keep_number(last, number);
  if (job.in_place[peer] && AL_THREAD == 0) raise_flag(read, before + static_cast<unsigned>(rounds_of(chunks)));
}
AL_DEVICE void pull_exchange(const Exchange& job, int peer, i64 block) {
  const BulkSlots& slots = job.slots;
  auto* output = static_cast<unsigned char*>(job.output[peer]);
  const Chunks chunks = {job.taken[peer], job.chunk_taken[peer], block, job.blocks_taken[peer]};
  unsigned* const last = exchange_count(slots, kExchangeTaken, peer, block);
  unsigned* const overwritten = exchange_count(slots, kExchangeOverwritten, peer, block);
  const unsigned before = *overwritten;
  const i64 rounds = rounds_of(chunks);
  const auto await_reading = [&](i64 of) {
    if (!job.in_place[peer]) return;
    if (AL_THREAD == 0) await_flag(exchange_count(slots, kExchangeRead, peer, block), before + static_cast<unsigned>(of), nullptr);
    AL_SYNCHRONIZE();
  };
  i64 taken;
  const unsigned number = take_rounds(
      slots, block, *last, rounds, peer, peer + 1, taken, [&](i64 round, i64 slot) {
        await_reading(round + 1);
        copy_bytes(output + begin_of(chunks, round), slots.mine[peer] + slot, length_of(chunks, round));
      });
  if (taken < rounds) await_reading(rounds);
  for (; taken < rounds; ++taken)
    overwrite({output + begin_of(chunks, taken), length_of(chunks, taken), job.poison[peer], nullptr}, 0, 1);
  keep_number(last, number);
  if (job.in_place[peer] && AL_THREAD == 0) *overwritten = before + static_cast<unsigned>(rounds);
}
// Copies the block that this rank has for itself.
AL_DEVICE void copy_own_exchange(const Exchange& job, i64 block) {
  const int rank = job.slots.rank;
  const Chunks chunks = {job.sent[rank], job.chunk_sent[rank], block, job.blocks_sent[rank]};
  for (i64 round = 0; round < rounds_of(chunks); ++round)
    copy_bytes(static_cast<unsigned char*>(job.output[rank]) + begin_of(chunks, round),
               static_cast<const unsigned char*>(job.input[rank]) + begin_of(chunks, round), length_of(chunks, round));
}

#ifdef __CUDACC__
// The grid has one row of thread blocks for each rank. Even blocks push and odd blocks pull. So a
// block that other ranks wait for starts no later than a block that waits.
AL_DEVICE void run_exchange(const Exchange& job) {
  const int peer = static_cast<int>(blockIdx.y), block = static_cast<int>(blockIdx.x / 2);
  if (blockIdx.x % 2 == 0) {
    if (block < job.blocks_sent[peer]) peer == job.slots.rank ? copy_own_exchange(job, block) : push_exchange(job, peer, block);
  } else {
    if (block < job.blocks_taken[peer] && peer != job.slots.rank) pull_exchange(job, peer, block);
  }
}
#endif

}  // namespace altorch::kernels
