// SPDX-License-Identifier: BSD-3-Clause
// Reductions that cannot run on the caller's buffers as they are: a prescaled sum must not change
// its input, and half types accumulate in float32 when more than two ranks add up, also by
// algorithms that add in several steps (needs_staging(), select/decide.h). They go through staging
// memory, piece by piece, so that any size needs little of it. The ranks of a collective get
// equally many pieces, and at least one.
//
// Thread rules: one user at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/operation.h"
#include "runtime/scratch.h"

namespace altorch {

class Staging {
 public:
  // Begins with `operation`, which must stay valid, with its buffers, until next() returns false or
  // the caller aborts it. Throws Error(kTransport) where there is no memory. After an abort that
  // leaves buffers in use (Channel::cancel()), never use or destroy this object.
  void begin(const Operation& operation, int rank, int size);
  // Copies the next piece of the input to staging memory, and sets `piece` to the operation on it.
  // `piece` points into this object until the call after that. The caller carries out `piece`, and
  // calls finish_piece() before it calls next() again. Returns false, and leaves `piece` alone,
  // when all pieces are finished.
  bool next(Operation& piece);
  // Copies the result of the current piece to the caller's output, where this rank has one.
  void finish_piece();

  static constexpr std::int64_t kPieceBytes = 8 << 20;  // of a piece of the input in staging memory

 private:
  std::int64_t block_count(int block) const;
  std::int64_t piece_of(int block) const;
  void load(const char* from, char* to, std::int64_t count) const;
  void store(const char* from, char* to, std::int64_t count) const;

  const Operation* operation_ = nullptr;
  int rank_ = 0, size_ = 1, blocks_ = 1;
  DType staged_dtype_ = DType::kFloat32;
  std::int64_t offset_ = 0, length_ = 0, longest_ = 0;
  bool started_ = false;
  std::vector<std::int64_t> counts_;
  Scratch memory_;
  char* input_ = nullptr;
  char* output_ = nullptr;
};

}  // namespace altorch
