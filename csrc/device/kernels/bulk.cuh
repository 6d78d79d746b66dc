// Collectives of any size in one kernel per rank, over memory of the GPUs that the ranks map: in rounds, of which
// each pushes data into the others' memory, raises a flag there, waits for theirs, and takes what has come. After
// reduce.cuh and small.cuh.
//
// Whoever gives up stays given up: flags that he would raise in later calls might be taken for those of this one.
//
// Every block of threads has places and flags of its own, and goes through its rounds with the same block of the
// other ranks. What is reduced in shares that are passed on goes in two slots, used in turn: a block that begins a round
// has seen everybody's flag of the round before, which nobody raises before he has taken all of the round before that one.
// For all else (folds, mail) a rank has blocks that push and blocks that take, so that both are under way at all times; there
// are four slots, and flags that say what was taken too, behind those that say what is there.

namespace altorch::kernels {

// As BulkPlaces in device/device.h.
struct BulkPlaces {
  unsigned char* theirs[16];
  const unsigned char* mine[16];
  unsigned* raised[16];
  const unsigned* awaited[16];
  unsigned* numbers;
  const unsigned* aborted;
  long long part;
  int rank, number, blocks, reserved;
};

// As BulkReduction in device/device.h.
struct BulkReduction {
  BulkPlaces places;
  const void* input;
  void* output;
  long long count, share, stride, step, tiles;
  int goes_to, blocks, scaled, reserved;
  double factor;
  unsigned long long poison;
};

// As BulkFold in device/device.h.
struct BulkFold {
  BulkPlaces places;
  const void* input;
  void* output;
  long long begins[16], counts[16], chunk, longest;
  int blocks, scaled;
  double factor;
  unsigned long long poison;
};

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

// What is counted here are rounds, of which four begin again with the first slot, also behind the last number. In place
// of its last one stands this where a block has given up.
constexpr unsigned kGivenUp = 0xFFFFFFFFu;
AL_DEVICE unsigned next_round(unsigned last) { return last == 0xFFFFFFFBu ? 0 : last + 1; }
AL_DEVICE unsigned fourth_before(unsigned round) { return round <= 3 ? round - 8 : round - 4; }

AL_DEVICE void raise_flag(unsigned* flag, unsigned number) {
#ifdef __CUDACC__
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(number) : "memory");
#else
  __atomic_store_n(flag, number, __ATOMIC_RELEASE);
#endif
}

// False when it is given up instead. Without `aborted` it is not: the same kernel raises it, whatever becomes of the call.
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
AL_DEVICE void copy_units(void* to, const void* from, long long begin, long long end) {
  constexpr int kAtOnce = 8;  // loads of a thread under way
  const Unit* source = static_cast<const Unit*>(from);
  Unit* target = static_cast<Unit*>(to);
  long long at = begin + AL_THREAD;
  for (; at + (kAtOnce - 1) * AL_THREADS < end; at += kAtOnce * AL_THREADS) {
    Unit held[kAtOnce];
    AL_UNROLL for (int i = 0; i < kAtOnce; ++i) held[i] = source[at + i * AL_THREADS];
    AL_UNROLL for (int i = 0; i < kAtOnce; ++i) target[at + i * AL_THREADS] = held[i];
  }
  for (; at < end; at += AL_THREADS) target[at] = source[at];
}

// By all threads of a block.
AL_DEVICE void copy_bytes(void* to, const void* from, long long bytes) {
  const auto addresses = reinterpret_cast<unsigned long long>(to) | reinterpret_cast<unsigned long long>(from);
  long long wide = 0;
  if (addresses % 16 == 0) {
    copy_units<Pack<unsigned char>>(to, from, 0, (wide = bytes / 16 * 16) / 16);
  } else if (addresses % 4 == 0) {
    copy_units<unsigned>(to, from, 0, (wide = bytes / 4 * 4) / 4);
  } else if (addresses % 2 == 0) {
    copy_units<unsigned short>(to, from, 0, (wide = bytes / 2 * 2) / 2);
  }
  copy_units<unsigned char>(to, from, wide, bytes);
}

// By all threads of a block: raises a flag of this rank's at each of the ranks first to behind - 1, when what they have
// written is there. Nothing for a rank without one.
AL_DEVICE void tell(const BulkPlaces& places, long long flag, unsigned number, int first, int behind) {
  AL_SYNCHRONIZE();
  for (int rank = first + static_cast<int>(AL_THREAD); rank < behind; rank += static_cast<int>(AL_THREADS))
    if (places.raised[rank]) raise_flag(places.raised[rank] + flag, number);
}
// Waits for theirs. False when it is given up instead.
AL_DEVICE bool await(const BulkPlaces& places, long long flag, unsigned number, int first, int behind) {
  bool here = true;
  for (int rank = first + static_cast<int>(AL_THREAD); here && rank < behind; rank += static_cast<int>(AL_THREADS))
    if (places.awaited[rank]) here = await_flag(places.awaited[rank] + flag, number, places.aborted);
  return AL_ALL(here);
}

// Where a block has its data of a round, in a place: in one slot of four, or as two parts in one of two.
AL_DEVICE long long slot_at(const BulkPlaces& places, long long block, unsigned number) {
  return (number % 4 * places.blocks + block) * places.part;
}
AL_DEVICE long long parts_at(const BulkPlaces& places, long long block, unsigned number) {
  return ((number & 1) * places.blocks + block) * 2 * places.part;
}

// Rounds in which a block pushes to the ranks first to behind - 1. `push` is given the round's place among them, and where
// its data lies. Returns the number of the last round, or kGivenUp.
template <class Push>
AL_DEVICE unsigned push_rounds(const BulkPlaces& places, long long block, unsigned number, long long rounds, int first,
                               int behind, const Push& push) {
  for (long long round = 0; round < rounds; ++round) {
    const unsigned next = next_round(number);
    if (number == kGivenUp || !await(places, places.blocks + block, fourth_before(next), first, behind)) return kGivenUp;
    number = next;
    push(round, slot_at(places, block, number));
    tell(places, block, number, first, behind);
  }
  return number;
}
// The same of what these have pushed. `taken` is how many rounds were taken.
template <class Take>
AL_DEVICE unsigned take_rounds(const BulkPlaces& places, long long block, unsigned number, long long rounds, int first,
                               int behind, long long& taken, const Take& take) {
  for (taken = 0; taken < rounds; ++taken) {
    const unsigned next = next_round(number);
    if (number == kGivenUp || !await(places, block, next, first, behind)) return kGivenUp;
    number = next;
    take(taken, slot_at(places, block, number));
    tell(places, places.blocks + block, number, first, behind);
  }
  return number;
}
// After everything that the threads of the block do.
AL_DEVICE void keep_number(unsigned* at, unsigned number) {
  AL_LET_THE_NEXT_COME();
  AL_SYNCHRONIZE();
  if (AL_THREAD == 0) *at = number;
}

// What comes in chunks, of which each of so many blocks has every so manieth.
struct Chunks {
  long long all, chunk, block, blocks;
};
AL_DEVICE long long rounds_of(const Chunks& chunks) {
  const long long left = chunks.all - chunks.block * chunks.chunk, step = chunks.blocks * chunks.chunk;
  return left <= 0 ? 0 : (left + step - 1) / step;
}
AL_DEVICE long long begin_of(const Chunks& chunks, long long round) {
  return (chunks.block + round * chunks.blocks) * chunks.chunk;
}
AL_DEVICE long long length_of(const Chunks& chunks, long long round) {
  const long long left = chunks.all - begin_of(chunks, round);
  return left < 0 ? 0 : left < chunks.chunk ? left : chunks.chunk;
}

// A rank's share of a tile, in elements from the beginning of the vector.
struct Share {
  long long at, count;
};
AL_DEVICE Share share_of(const BulkReduction& job, long long tile, int rank) {
  const long long at = rank * job.stride + tile * job.step, left = job.count - at;
  return {at, left < 0 ? 0 : left < job.share ? left : job.share};
}

// Where a block's threads find the parts of a share, and leave the result.
struct ShareJob {
  const void* parts[16];
  void* results[16];
  int number, results_number, own, scaled;
  double factor;
};

// So many groups of elements at once, from `at` on, `stride` apart: their loads are under way together.
template <class Number, class Operator, bool kMean, class Group, int kAtOnce>
AL_DEVICE void reduce_groups(const ShareJob& job, long long at, long long stride) {
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
    AL_UNROLL for (int i = 0; i < kLength; ++i) {
      if constexpr (kMean) sum[turn][i] = Number::mean(sum[turn][i], job.number);
      elements[i] = Number::narrow(sum[turn][i]);
    }
    for (int i = 0; i < job.results_number; ++i) static_cast<Group*>(job.results[i])[at + turn * stride] = result;
  }
}

// In place, too: a thread writes the elements that it has read itself.
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_share(const ShareJob& job, long long count) {
  using Stored = typename Number::Stored;
  using Vector = Pack<Stored>;
  constexpr int kAtOnce = sizeof(Stored) == 1 ? 1 : 2;  // as many sums as registers hold
  unsigned long long addresses = 0;
  for (int i = 0; i < job.number; ++i) addresses |= reinterpret_cast<unsigned long long>(job.parts[i]);
  for (int i = 0; i < job.results_number; ++i) addresses |= reinterpret_cast<unsigned long long>(job.results[i]);
  const long long packs = addresses % 16 == 0 ? count / Vector::kLength : 0;
  long long at = AL_THREAD;
  for (; at + (kAtOnce - 1) * AL_THREADS < packs; at += kAtOnce * AL_THREADS)
    reduce_groups<Number, Operator, kMean, Vector, kAtOnce>(job, at, AL_THREADS);
  for (; at < packs; at += AL_THREADS) reduce_groups<Number, Operator, kMean, Vector, 1>(job, at, 0);
  for (at = packs * Vector::kLength + AL_THREAD; at < count; at += AL_THREADS)
    reduce_groups<Number, Operator, kMean, Stored, 1>(job, at, 0);
}

// What this rank sends of its vector: multiplied where that is asked for.
template <class Number, class Job>
AL_DEVICE void push_part(const Job& job, void* to, long long begin, long long count) {
  using Stored = typename Number::Stored;
  const Stored* from = static_cast<const Stored*>(job.input) + begin;
  if constexpr (requires(typename Number::Computed value) { Number::scale(value, 1.0); }) {
    for (long long at = AL_THREAD; job.scaled && at < count; at += AL_THREADS)
      static_cast<Stored*>(to)[at] = Number::narrow(Number::scale(Number::widen(from[at]), job.factor));
    if (job.scaled) return;
  }
  copy_bytes(to, from, count * static_cast<long long>(sizeof(Stored)));
}

// Elements of the result that do not come.
template <class Number, class Job>
AL_DEVICE void mark_part(const Job& job, long long begin, long long count) {
  using Stored = typename Number::Stored;
  overwrite({static_cast<Stored*>(job.output) + begin, count * static_cast<long long>(sizeof(Stored)), job.poison, nullptr},
            0, 1);
}

// Every rank has something of its vector for each of those that want it, and reduces what is for itself. A rank tells itself,
// too, what it has pushed: it may be about to overwrite it.
AL_DEVICE Chunks chunks_for(const BulkFold& job, int rank, long long block) {
  return {job.counts[rank], job.chunk, block, job.blocks};
}
AL_DEVICE long long rounds_of(const BulkFold& job, long long block) {
  return rounds_of(Chunks{job.longest, job.chunk, block, job.blocks});
}
// Where a block counts: rounds that it has pushed, or taken; calls that it has pushed, or taken.
enum FoldCount { kFoldPushed, kFoldTaken, kFoldCallsPushed, kFoldCallsTaken };
AL_DEVICE unsigned* fold_count(const BulkPlaces& places, FoldCount what, long long block) {
  return places.numbers + what * places.blocks + block;
}
template <class Number>
AL_DEVICE void push_fold(const BulkFold& job, long long block) {
  const BulkPlaces& places = job.places;
  unsigned* const last = fold_count(places, kFoldPushed, block);
  unsigned* const calls = fold_count(places, kFoldCallsPushed, block);
  const unsigned number = push_rounds(
      places, block, *last, rounds_of(job, block), 0, places.number, [&](long long round, long long slot) {
        for (int turn = 1; turn < places.number; ++turn) {
          const int rank = (places.rank + turn) % places.number;  // not everybody to the same one first
          const Chunks chunks = chunks_for(job, rank, block);
          push_part<Number>(job, places.theirs[rank] + slot, job.begins[rank] + begin_of(chunks, round),
                            length_of(chunks, round));
        }
      });
  keep_number(last, number);
  if (AL_THREAD == 0) raise_flag(calls, *calls + 1);
}
template <class Number, class Operator, bool kMean>
AL_DEVICE void take_fold(const BulkFold& job, long long block) {
  using Stored = typename Number::Stored;
  const BulkPlaces& places = job.places;
  const auto* own = static_cast<const Stored*>(job.input) + job.begins[places.rank];
  const Chunks chunks = chunks_for(job, places.rank, block);
  unsigned* const last = fold_count(places, kFoldTaken, block);
  unsigned* const calls = fold_count(places, kFoldCallsTaken, block);
  const long long rounds = rounds_of(job, block);
  long long taken;
  AL_SHARED(ShareJob, work);
  const unsigned number = take_rounds(
      places, block, *last, rounds, 0, places.number, taken, [&](long long round, long long slot) {
        const long long at = begin_of(chunks, round);
        if (AL_THREAD == 0) {
          work.number = places.number;
          work.own = places.rank;
          work.scaled = job.scaled;
          work.factor = job.factor;
          work.results_number = 1;
          work.results[0] = static_cast<Stored*>(job.output) + at;
          for (int rank = 0; rank < places.number; ++rank)
            work.parts[rank] =
                rank == places.rank ? static_cast<const void*>(own + at) : places.mine[rank] + slot;
        }
        AL_SYNCHRONIZE();
        reduce_share<Number, Operator, kMean>(work, length_of(chunks, round));
      });
  // What is given up may still be read by the block that pushes.
  if (taken < rounds && AL_THREAD == 0) await_flag(fold_count(places, kFoldCallsPushed, block), *calls + 1, nullptr);
  AL_SYNCHRONIZE();
  for (; taken < rounds; ++taken) mark_part<Number>(job, begin_of(chunks, taken), length_of(chunks, taken));
  keep_number(last, number);
  if (AL_THREAD == 0) ++*calls;
}

// What has not come, of a block's tiles: those from `first` on.
template <class Number>
AL_DEVICE void mark_tiles(const BulkReduction& job, long long first, bool takes_all) {
  for (long long tile = first; takes_all && tile < job.tiles; tile += job.blocks) {
    for (int rank = 0; rank < job.places.number; ++rank) {
      const Share share = share_of(job, tile, rank);
      mark_part<Number>(job, share.at, share.count);
    }
  }
}

// A vector in tiles, each of a share per rank: a rank gets its share of everybody, reduces it, and sends the result
// on at once, to be taken in the next round, in which the next tile's parts come.
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_bulk(const BulkReduction& job, long long block) {
  using Stored = typename Number::Stored;
  constexpr long long kElement = sizeof(Stored);
  constexpr int kAll = -1;
  const BulkPlaces& places = job.places;
  auto* output = static_cast<Stored*>(job.output);
  const bool takes_all = job.goes_to == kAll || job.goes_to == places.rank;
  AL_SHARED(ShareJob, work);
  unsigned number = places.numbers[block];
  long long before = -1;  // the tile whose results are under way
  for (long long tile = block; tile < job.tiles || before >= 0; tile += job.blocks) {
    const bool reduces = tile < job.tiles;
    if (number == kGivenUp) {
      mark_tiles<Number>(job, tile, takes_all);
      break;
    }
    number = next_round(number);
    const long long data = parts_at(places, block, number);
    for (int turn = 1; reduces && turn < places.number; ++turn) {
      const int rank = (places.rank + turn) % places.number;  // not everybody to the same one first
      const Share share = share_of(job, tile, rank);
      push_part<Number>(job, places.theirs[rank] + data, share.at, share.count);
    }
    tell(places, block, number, 0, places.number);
    if (!await(places, block, number, 0, places.number)) {
      mark_tiles<Number>(job, before >= 0 ? before : tile, takes_all);
      number = kGivenUp;
      break;
    }
    for (int turn = 1; before >= 0 && takes_all && turn < places.number; ++turn) {
      const int rank = (places.rank + turn) % places.number;
      const Share share = share_of(job, before, rank);
      copy_bytes(output + share.at, places.mine[rank] + data + places.part, share.count * kElement);
    }
    before = -1;
    if (!reduces) continue;
    const Share own = share_of(job, tile, places.rank);
    if (AL_THREAD == 0) {
      work.number = places.number;
      work.own = places.rank;
      work.scaled = job.scaled;
      work.factor = job.factor;
      work.results_number = 0;
      if (takes_all) work.results[work.results_number++] = output + own.at;
      const long long next = parts_at(places, block, next_round(number)) + places.part;
      for (int rank = 0; rank < places.number; ++rank) {
        work.parts[rank] = rank == places.rank
                               ? static_cast<const void*>(static_cast<const Stored*>(job.input) + own.at)
                               : places.mine[rank] + data;
        if (rank != places.rank && (job.goes_to == kAll || job.goes_to == rank))
          work.results[work.results_number++] = places.theirs[rank] + next;
      }
    }
    AL_SYNCHRONIZE();
    reduce_share<Number, Operator, kMean>(work, own.count);
    AL_SYNCHRONIZE();
    before = tile;
  }
  keep_number(places.numbers + block, number);
}

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
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_bulk_reduce(const BulkReduction& job) {
  reduce_bulk<Number, Operator, kMean>(job, blockIdx.x);
}
// Of two neighbours the first pushes and the second takes, so that those that the others wait for begin no later than those
// that wait.
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_bulk_fold(const BulkFold& job) {
  const int block = static_cast<int>(blockIdx.x / 2);
  blockIdx.x % 2 == 0 ? push_fold<Number>(job, block) : take_fold<Number, Operator, kMean>(job, block);
}
// A row of blocks for each rank; of neighbours as above.
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
