// SPDX-License-Identifier: BSD-3-Clause
// The arguments of the kernels of altorch.TokenSwitch: see token_slots.cuh and token_rows.cuh.
// jobs.cuh includes it. In the source that NVRTC gets it follows that file.
#ifndef ALTORCH_DEVICE_KERNELS_TOKEN_JOBS
#define ALTORCH_DEVICE_KERNELS_TOKEN_JOBS

namespace altorch {

// Where the tokens of all ranks go on this rank.
//
// gathered  the header of each rank, and `columns` indices of experts for each of its `max_tokens`
//           tokens
// slots     [ranks, max_tokens, rows_per_token]: the output row of each entry, or -1; undefined
//           after a rank's last token
// summary   the first entry that is out of range, or kNoneBad; the rows that this rank receives,
//           before a capacity drops some; the rows of each local expert; the headers of all ranks
//
// find_slots() fills in slots and summary. python/altorch/token_switch/_routing.py has the same
// numbers.
struct TokenTable {
  static constexpr int kHeader = 8, kTokens = 1;  // words of a header; which of them counts tokens
  static constexpr int kFirstBad = 0, kReceived = 1, kCounts = 2;  // words of a summary
  static constexpr int kNoneBad = 0x7FFFFFFF;
  const int* gathered = nullptr;
  int* slots = nullptr;
  int* summary = nullptr;
  int ranks = 1, max_tokens = 0, columns = 1;
  int rows_per_token = 1;  // entries of slots: `columns`, or 1 in the flat layout
  int first = 0, local = 1, experts = 1;
  int capacity = 0;  // rows of an expert; 0: any number
  int flat = 0;
};

// What a rank contributes to TokenTable::gathered: its header, `sent` indices, and -1 up to `size`
// words.
struct IndexPack {
  const void* indices = nullptr;
  int* packed = nullptr;
  int header[TokenTable::kHeader] = {};
  int wide = 0;  // 1: indices are int64; those that no int32 holds stay out of range
  kernels::i64 sent = 0, size = 0;
};

// Rows of bytes: those of a tensor, or a column of a buffer.
struct TokenRows {
  const void* from = nullptr;
  void* to = nullptr;
  kernels::i64 width = 0;                      // bytes of a row
  kernels::i64 rank_stride = 0, from_stride = 0, to_stride = 0;  // bytes
};

// Copies rows of several tensors side by side into one buffer, for one all_gather.
struct RowPack {
  static constexpr int kMaxParts = 3;
  TokenRows parts[kMaxParts] = {};
  int number = 0, count = 0;  // of parts; of rows
};

// Copies each row to its slots, and zeros to unused rows. A slot from `room` on is dropped.
struct RowScatter {
  static constexpr int kMaxParts = 2;  // tokens, and their scales
  TokenTable table;
  TokenRows parts[kMaxParts] = {};
  int number = 0;
  int count = 0;   // rows of each rank
  int room = 0;    // rows of the output
  int unused = 0;  // of those, how many are looked at: all, or none where it is known that all are used
  const float* weights = nullptr;                              // null: none
  kernels::i64 weights_rank_stride = 0, weights_row_stride = 0;  // elements
  float* out_weights = nullptr;
  kernels::i64* out_indices = nullptr;  // only in the flat layout
};

// Adds the rows that the slots of each token name, in the order of its slots.
struct RowSum {
  TokenTable table;
  const void* rows = nullptr;
  void* output = nullptr;  // [ranks, count, width]; undefined behind a rank's last token
  kernels::i64 stride = 0, width = 0;  // elements
  int count = 0, room = 0;             // rows of each rank in the output; of `rows`
};

}  // namespace altorch

#endif
