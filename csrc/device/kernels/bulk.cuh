// Collectives of any size in one kernel per rank, over memory of the GPUs that the ranks map: in rounds, of which
// each pushes data into the others' memory, raises a flag there, waits for theirs, and takes what has come. After
// reduce.cuh and small.cuh.
//
// Whoever gives up stays given up: flags that he would raise in later calls might be taken for those of this one.
//
// Every block of threads has places and flags of its own, and goes through its rounds with the same block of the
// other ranks. A place has two slots, used in turn: a block that begins a round has seen everybody's flag of the
// round before, which nobody raises before he has taken all of the round before that one.

#ifdef __CUDACC__
#define AL_SHARED __shared__
#else
#define AL_SHARED
#endif

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
  long long begins[17];
  int goes_to, scatters, scaled, blocks;
  double factor;
  unsigned long long poison;
};

// As BulkMoves in device/device.h.
struct BulkMoves {
  BulkPlaces places;
  const void* input[16];
  void* output[16];
  long long sent[16], taken[16], chunk[16];
  int blocks[16];
  unsigned long long poison;
};

// As BulkMail in device/device.h.
struct BulkMail {
  BulkPlaces places;
  unsigned* taken_there[16];
  const unsigned* taken_here[16];
  const void* input[16];
  void* output[16];
  long long sent[16], taken[16], chunk_sent[16], chunk_taken[16];
  int blocks_sent[16], blocks_taken[16];
  unsigned long long poison[16];
};

// What is counted here are rounds. In place of its last one stands this where a block has given up.
constexpr unsigned kGivenUp = 0xFFFFFFFFu;
AL_DEVICE unsigned next_round(unsigned last) { return last == 0xFFFFFFFDu ? 0 : last + 1; }
AL_DEVICE unsigned second_before(unsigned round) { return round <= 1 ? round - 4 : round - 2; }

AL_DEVICE void raise_flag(unsigned* flag, unsigned number) {
#ifdef __CUDACC__
  __threadfence_system();
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(number) : "memory");
#else
  __atomic_store_n(flag, number, __ATOMIC_RELEASE);
#endif
}

// False when it is given up instead.
AL_DEVICE bool await_flag(const unsigned* flag, unsigned number, const unsigned* aborted) {
  for (int polls = 1;; ++polls) {
#ifdef __CUDACC__
    unsigned found;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");
#else
    const unsigned found = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
#endif
    if (static_cast<int>(found - number) >= 0) return true;
    if (polls % 1024 == 0 && is_set(aborted)) return false;
    AL_PAUSE();
  }
}

template <class Unit>
AL_DEVICE void copy_units(void* to, const void* from, long long begin, long long end) {
  constexpr int kAtOnce = 4;  // loads of a thread under way
  const Unit* source = static_cast<const Unit*>(from);
  Unit* target = static_cast<Unit*>(to);
  long long at = begin + AL_THREAD;
  for (; at + (kAtOnce - 1) * AL_THREADS < end; at += kAtOnce * AL_THREADS) {
    Unit held[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) held[i] = source[at + i * AL_THREADS];
    for (int i = 0; i < kAtOnce; ++i) target[at + i * AL_THREADS] = held[i];
  }
  for (; at < end; at += AL_THREADS) target[at] = source[at];
}

// By all threads of a block.
AL_DEVICE void copy_bytes(void* to, const void* from, long long bytes) {
  const auto addresses = reinterpret_cast<unsigned long long>(to) | reinterpret_cast<unsigned long long>(from);
  const long long wide = addresses % 16 == 0 ? bytes / 16 * 16 : 0;
  copy_units<Pack<unsigned char>>(to, from, 0, wide / 16);
  copy_units<unsigned char>(to, from, wide, bytes);
}

// One block's round: what its threads have pushed is there for the ranks first to behind - 1, and theirs for this one.
// False when it is given up instead.
AL_DEVICE bool meet_others(const BulkPlaces& places, long long block, unsigned number, int first, int behind) {
#ifdef __CUDACC__
  __syncthreads();
  bool here = true;
  const int rank = first + static_cast<int>(threadIdx.x);
  if (rank < behind && rank != places.rank) {
    raise_flag(places.raised[rank] + block, number);
    here = await_flag(places.awaited[rank] + block, number, places.aborted);
  }
  return __syncthreads_and(here);
#else
  bool here = true;
  for (int rank = first; rank < behind; ++rank)
    if (rank != places.rank) raise_flag(places.raised[rank] + block, number);
  for (int rank = first; here && rank < behind; ++rank)
    if (rank != places.rank) here = await_flag(places.awaited[rank] + block, number, places.aborted);
  return here;
#endif
}

// Where a block has its data of a round, in a place: two parts.
AL_DEVICE long long data_at(const BulkPlaces& places, long long block, unsigned number) {
  return ((number & 1) * places.blocks + block) * 2 * places.part;
}

// A rank's share of a tile, in elements from the beginning of the vector.
struct Share {
  long long at, count;
};
AL_DEVICE Share share_of(const BulkReduction& job, long long tile, int rank) {
  const long long at = (job.scatters ? job.begins[rank] : rank * job.stride) + tile * job.step;
  const long long left = (job.scatters ? job.begins[rank + 1] : job.count) - at;
  return {at, left < 0 ? 0 : left < job.share ? left : job.share};
}

// Where a block's threads find the parts of a share, and leave the result.
struct ShareJob {
  const void* parts[16];
  void* results[16];
  int number, results_number, own, scaled;
  double factor;
};

template <class Number, class Operator, bool kMean, class Group>
AL_DEVICE void reduce_share(const ShareJob& job, long long at) {
  using Stored = typename Number::Stored;
  constexpr int kLength = sizeof(Group) / sizeof(Stored);
  typename Number::Computed sum[kLength]{};
  for (int part = 0; part < job.number; ++part) {
    const Group group = static_cast<const Group*>(job.parts[part])[at];
    const Stored* elements = reinterpret_cast<const Stored*>(&group);
    for (int i = 0; i < kLength; ++i) {
      typename Number::Computed value = Number::widen(elements[i]);
      if constexpr (requires { Number::scale(value, 1.0); }) {
        // Narrowed as what the others have sent.
        if (part == job.own && job.scaled) value = Number::widen(Number::narrow(Number::scale(value, job.factor)));
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
  for (int i = 0; i < job.results_number; ++i) static_cast<Group*>(job.results[i])[at] = result;
}

template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_share(const ShareJob& job, long long first, long long count) {
  using Stored = typename Number::Stored;
  using Vector = Pack<Stored>;
  unsigned long long addresses = 0;
  for (int i = 0; i < job.number; ++i) addresses |= reinterpret_cast<unsigned long long>(job.parts[i]);
  for (int i = 0; i < job.results_number; ++i) addresses |= reinterpret_cast<unsigned long long>(job.results[i]);
  const long long packs = addresses % 16 == 0 ? count / Vector::kLength : 0;
  for (long long at = first; at < packs; at += AL_THREADS)
    reduce_share<Number, Operator, kMean, Vector>(job, at);
  for (long long at = packs * Vector::kLength + first; at < count; at += AL_THREADS)
    reduce_share<Number, Operator, kMean, Stored>(job, at);
}

// What this rank sends of a share: its own, multiplied where that is asked for.
template <class Number>
AL_DEVICE void push_share(const BulkReduction& job, void* to, Share share) {
  using Stored = typename Number::Stored;
  const Stored* from = static_cast<const Stored*>(job.input) + share.at;
  if constexpr (requires(typename Number::Computed value) { Number::scale(value, 1.0); }) {
    for (long long at = AL_THREAD; job.scaled && at < share.count; at += AL_THREADS)
      static_cast<Stored*>(to)[at] = Number::narrow(Number::scale(Number::widen(from[at]), job.factor));
    if (job.scaled) return;
  }
  copy_bytes(to, from, share.count * static_cast<long long>(sizeof(Stored)));
}

// What has not come, of a block's tiles: those from `first` on.
template <class Number>
AL_DEVICE void mark_tiles(const BulkReduction& job, long long first, bool takes_all) {
  using Stored = typename Number::Stored;
  for (long long tile = first; tile < job.tiles; tile += job.blocks) {
    for (int rank = 0; rank < job.places.number; ++rank) {
      const Share share = share_of(job, tile, rank);
      const bool own = job.scatters && rank == job.places.rank;
      if (!own && !takes_all) continue;
      overwrite({static_cast<Stored*>(job.output) + share.at - (own ? job.begins[rank] : 0),
                 share.count * static_cast<long long>(sizeof(Stored)), job.poison, nullptr},
                0, 1);
    }
  }
}

// A vector in tiles, each of a share per rank: a rank gets its share of everybody, reduces it, and sends the result
// on at once, to be taken in the next round, in which the next tile's parts come.
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_bulk(const BulkReduction& job, long long block) {
  using Stored = typename Number::Stored;
  constexpr long long kElement = sizeof(Stored);
  constexpr int kAll = -1, kNobody = -2;
  const BulkPlaces& places = job.places;
  auto* output = static_cast<Stored*>(job.output);
  const bool takes_all = job.goes_to == kAll || job.goes_to == places.rank;
  AL_SHARED ShareJob work;
  unsigned number = places.numbers[block];
  long long before = -1;  // the tile whose results are under way
  for (long long tile = block; tile < job.tiles || before >= 0; tile += job.blocks) {
    const bool reduces = tile < job.tiles;
    if (number == kGivenUp) {
      mark_tiles<Number>(job, tile, takes_all);
      break;
    }
    number = next_round(number);
    const long long data = data_at(places, block, number);
    for (int turn = 1; reduces && turn < places.number; ++turn) {
      const int rank = (places.rank + turn) % places.number;  // not everybody to the same one first
      push_share<Number>(job, places.theirs[rank] + data, share_of(job, tile, rank));
    }
    if (!meet_others(places, block, number, 0, places.number)) {
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
      if (job.goes_to == kNobody) work.results[work.results_number++] = output + (own.at - job.begins[places.rank]);
      if (takes_all) work.results[work.results_number++] = output + own.at;
      const long long next = data_at(places, block, next_round(number)) + places.part;
      for (int rank = 0; rank < places.number; ++rank) {
        work.parts[rank] = rank == places.rank
                               ? static_cast<const void*>(static_cast<const Stored*>(job.input) + own.at)
                               : places.mine[rank] + data;
        if (rank != places.rank && (job.goes_to == kAll || job.goes_to == rank))
          work.results[work.results_number++] = places.theirs[rank] + next;
      }
    }
    AL_SYNCHRONIZE();
    reduce_share<Number, Operator, kMean>(work, AL_THREAD, own.count);
    AL_SYNCHRONIZE();
    if (job.goes_to != kNobody) before = tile;
  }
  AL_SYNCHRONIZE();
  if (AL_THREAD == 0) places.numbers[block] = number;
}

// Blocks between this rank and one other, of any size.
AL_DEVICE void move_bulk(const BulkMoves& job, int peer, long long block) {
  const BulkPlaces& places = job.places;
  const auto* input = static_cast<const unsigned char*>(job.input[peer]);
  auto* output = static_cast<unsigned char*>(job.output[peer]);
  const long long sent = job.sent[peer], taken = job.taken[peer], chunk = job.chunk[peer];
  const auto rest = [&](long long all, long long at) { return all - at < chunk ? all - at : chunk; };
  const long long end = sent > taken ? sent : taken;
  unsigned* numbers = places.numbers + peer * places.blocks;
  unsigned number = numbers[block];
  for (long long at = block * chunk; at < end; at += job.blocks[peer] * chunk) {
    if (peer == places.rank) {
      copy_bytes(output + at, input + at, rest(sent, at));
      continue;
    }
    const unsigned round = next_round(number);
    const long long data = data_at(places, block, round);
    if (number != kGivenUp && at < sent) copy_bytes(places.theirs[peer] + data, input + at, rest(sent, at));
    if (number == kGivenUp || !meet_others(places, block, round, peer, peer + 1)) {
      for (; at < taken; at += job.blocks[peer] * chunk)
        overwrite({output + at, rest(taken, at), job.poison, nullptr}, 0, 1);
      number = kGivenUp;
      break;
    }
    number = round;
    if (at < taken) copy_bytes(output + at, places.mine[peer] + data, rest(taken, at));
    AL_SYNCHRONIZE();
  }
  AL_SYNCHRONIZE();
  if (AL_THREAD == 0 && peer != places.rank) numbers[block] = number;
}

// By one thread, for the block.
AL_DEVICE bool await_by_all(const unsigned* flag, unsigned number, const unsigned* aborted) {
#ifdef __CUDACC__
  return __syncthreads_and(threadIdx.x != 0 || await_flag(flag, number, aborted));
#else
  return await_flag(flag, number, aborted);
#endif
}
AL_DEVICE void raise_by_all(unsigned* flag, unsigned number) {
  AL_SYNCHRONIZE();
  if (AL_THREAD == 0) raise_flag(flag, number);
}

// Messages wait for nobody while the receiver's slots have room: two rounds of every block.
AL_DEVICE void send_mail(const BulkMail& job, int peer, long long block) {
  const BulkPlaces& places = job.places;
  const auto* input = static_cast<const unsigned char*>(job.input[peer]);
  const long long sent = job.sent[peer], chunk = job.chunk_sent[peer];
  unsigned* numbers = places.numbers + peer * places.blocks;
  unsigned number = numbers[block];
  for (long long at = block * chunk; at < sent; at += job.blocks_sent[peer] * chunk) {
    const unsigned round = next_round(number);
    if (number == kGivenUp || !await_by_all(job.taken_here[peer] + block, second_before(round), places.aborted)) {
      number = kGivenUp;
      break;
    }
    number = round;
    const long long slot = ((number & 1) * places.blocks + block) * places.part;
    copy_bytes(places.theirs[peer] + slot, input + at, sent - at < chunk ? sent - at : chunk);
    raise_by_all(places.raised[peer] + block, number);
  }
  AL_SYNCHRONIZE();
  if (AL_THREAD == 0) numbers[block] = number;
}
AL_DEVICE void receive_mail(const BulkMail& job, int peer, long long block) {
  const BulkPlaces& places = job.places;
  auto* output = static_cast<unsigned char*>(job.output[peer]);
  const long long taken = job.taken[peer], chunk = job.chunk_taken[peer];
  unsigned* numbers = places.numbers + (places.number + peer) * places.blocks;
  unsigned number = numbers[block];
  for (long long at = block * chunk; at < taken; at += job.blocks_taken[peer] * chunk) {
    const unsigned round = next_round(number);
    const long long length = taken - at < chunk ? taken - at : chunk;
    if (number == kGivenUp || !await_by_all(places.awaited[peer] + block, round, places.aborted)) {
      for (; at < taken; at += job.blocks_taken[peer] * chunk)
        overwrite({output + at, taken - at < chunk ? taken - at : chunk, job.poison[peer], nullptr}, 0, 1);
      number = kGivenUp;
      break;
    }
    number = round;
    const long long slot = ((number & 1) * places.blocks + block) * places.part;
    copy_bytes(output + at, places.mine[peer] + slot, length);
    raise_by_all(job.taken_there[peer] + block, number);
  }
  AL_SYNCHRONIZE();
  if (AL_THREAD == 0) numbers[block] = number;
}

#ifdef __CUDACC__
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_bulk_reduce(const BulkReduction& job) {
  reduce_bulk<Number, Operator, kMean>(job, blockIdx.x);
}
// A row of blocks for each rank; of two neighbours the first sends and the second takes, so that those that the others
// wait for begin no later than those that wait.
AL_DEVICE void run_bulk_mail(const BulkMail& job) {
  const int peer = static_cast<int>(blockIdx.y), block = static_cast<int>(blockIdx.x / 2);
  if (blockIdx.x % 2 == 0) {
    if (block < job.blocks_sent[peer]) send_mail(job, peer, block);
  } else {
    if (block < job.blocks_taken[peer]) receive_mail(job, peer, block);
  }
}
// A row of blocks for each rank.
AL_DEVICE void run_bulk_move(const BulkMoves& job) {
  if (blockIdx.x < job.blocks[blockIdx.y]) move_bulk(job, blockIdx.y, blockIdx.x);
}
#endif

}  // namespace altorch::kernels
