// Blocks between pairs of ranks, of any size: what collectives move, and messages. After rounds.cuh.

namespace altorch::kernels {

// As BulkMail in device/device.h.
struct BulkMail {
  BulkPlaces places;
  const void* input[16];
  void* output[16];
  long long sent[16], taken[16], chunk_sent[16], chunk_taken[16];
  int blocks_sent[16], blocks_taken[16];
  unsigned long long poison[16];
  int in_place[16];
};

// Where a block counts of one other rank: rounds that were sent, rounds that were taken; and of what is exchanged in place,
// rounds that were read, and those that were overwritten.
enum MailCount { kMailSent, kMailTaken, kMailRead, kMailOverwritten };
AL_DEVICE unsigned* mail_count(const BulkPlaces& places, MailCount what, int peer, long long block) {
  return places.numbers + (static_cast<long long>(what) * places.number + peer) * places.blocks + block;
}

// One block of threads, one other rank: messages wait for nobody while the receiver's slots have room.
AL_DEVICE void send_mail(const BulkMail& job, int peer, long long block) {
  const BulkPlaces& places = job.places;
  const auto* input = static_cast<const unsigned char*>(job.input[peer]);
  const Chunks chunks = {job.sent[peer], job.chunk_sent[peer], block, job.blocks_sent[peer]};
  unsigned* const last = mail_count(places, kMailSent, peer, block);
  unsigned* const read = mail_count(places, kMailRead, peer, block);
  const unsigned before = *read;
  const unsigned number = push_rounds(
      places, block, *last, rounds_of(chunks), peer, peer + 1, [&](long long round, long long slot) {
        copy_bytes(places.theirs[peer] + slot, input + begin_of(chunks, round), length_of(chunks, round));
        if (!job.in_place[peer]) return;
        AL_SYNCHRONIZE();
        if (AL_THREAD == 0) raise_flag(read, before + static_cast<unsigned>(round) + 1);
      });
  keep_number(last, number);
  if (job.in_place[peer] && AL_THREAD == 0) raise_flag(read, before + static_cast<unsigned>(rounds_of(chunks)));
}
AL_DEVICE void receive_mail(const BulkMail& job, int peer, long long block) {
  const BulkPlaces& places = job.places;
  auto* output = static_cast<unsigned char*>(job.output[peer]);
  const Chunks chunks = {job.taken[peer], job.chunk_taken[peer], block, job.blocks_taken[peer]};
  unsigned* const last = mail_count(places, kMailTaken, peer, block);
  unsigned* const overwritten = mail_count(places, kMailOverwritten, peer, block);
  const unsigned before = *overwritten;
  const long long rounds = rounds_of(chunks);
  const auto await_reading = [&](long long of) {
    if (!job.in_place[peer]) return;
    if (AL_THREAD == 0) await_flag(mail_count(places, kMailRead, peer, block), before + static_cast<unsigned>(of), nullptr);
    AL_SYNCHRONIZE();
  };
  long long taken;
  const unsigned number = take_rounds(
      places, block, *last, rounds, peer, peer + 1, taken, [&](long long round, long long slot) {
        await_reading(round + 1);
        copy_bytes(output + begin_of(chunks, round), places.mine[peer] + slot, length_of(chunks, round));
      });
  if (taken < rounds) await_reading(rounds);
  for (; taken < rounds; ++taken)
    overwrite({output + begin_of(chunks, taken), length_of(chunks, taken), job.poison[peer], nullptr}, 0, 1);
  keep_number(last, number);
  if (job.in_place[peer] && AL_THREAD == 0) *overwritten = before + static_cast<unsigned>(rounds);
}
// What a rank has for itself.
AL_DEVICE void keep_mail(const BulkMail& job, long long block) {
  const int rank = job.places.rank;
  const Chunks chunks = {job.sent[rank], job.chunk_sent[rank], block, job.blocks_sent[rank]};
  for (long long round = 0; round < rounds_of(chunks); ++round)
    copy_bytes(static_cast<unsigned char*>(job.output[rank]) + begin_of(chunks, round),
               static_cast<const unsigned char*>(job.input[rank]) + begin_of(chunks, round), length_of(chunks, round));
}

#ifdef __CUDACC__
// A row of blocks for each rank; of two neighbours the first sends and the second takes, so that those that the others wait for
// begin no later than those that wait.
AL_DEVICE void run_bulk_mail(const BulkMail& job) {
  const int peer = static_cast<int>(blockIdx.y), block = static_cast<int>(blockIdx.x / 2);
  if (blockIdx.x % 2 == 0) {
    if (block < job.blocks_sent[peer]) peer == job.places.rank ? keep_mail(job, block) : send_mail(job, peer, block);
  } else {
    if (block < job.blocks_taken[peer] && peer != job.places.rank) receive_mail(job, peer, block);
  }
}
#endif

}  // namespace altorch::kernels
