// SPDX-License-Identifier: BSD-3-Clause
// Copies many blocks in one kernel: a launch takes the host as long as one copy of the driver does.
// Several thread blocks work on a copy, each on a piece of it. Include after rounds.cuh and
// parts.cuh.

namespace altorch::kernels {

// By all threads of a block. Pieces are multiples of 16 bytes, so each is aligned as its copy is.
AL_DEVICE void copy_piece(const BlockCopies& job, int copy, int piece, int pieces) {
  constexpr i64 kUnit = 16;
  const auto& block = job.copies[copy];
  const Range units = part_of((block.bytes + kUnit - 1) / kUnit, piece, pieces);
  const i64 begin = units.begin * kUnit;
  const i64 end = units.end * kUnit < block.bytes ? units.end * kUnit : block.bytes;
  copy_bytes(static_cast<unsigned char*>(block.to) + begin, static_cast<const unsigned char*>(block.from) + begin,
             end - begin);
}

#ifdef __CUDACC__
// blockIdx.x is the copy, blockIdx.y the piece.
AL_DEVICE void run_copy_blocks(const BlockCopies& job) {
  AL_LAUNCH_DEPENDENTS();
  copy_piece(job, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(gridDim.y));
}
#endif

}  // namespace altorch::kernels
