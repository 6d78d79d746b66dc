// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of a group tell each other of their sparse tensors, and what they make of it: the
// data side of a sparse all_reduce.
//
// Two all_gathers carry it: one of descriptions, of a fixed size, and one of what the descriptions
// announce, indices and values of each rank in one run of bytes. Every rank adds up the same
// numbers in the same order, so all get the same bits. Half types travel and add up as float32 and
// are rounded once. Only at:: functions touch the data, so it may be on a GPU. Thread rules: one
// thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/operation.h"

namespace altorch::backend {

class SparseSum {
 public:
  // Throws Error(kInvalidArgument) for what cannot be summed.
  SparseSum(at::Tensor tensor, int rank, int size);

  // The all_gather of descriptions, on host memory.
  void describe(Operation& operation);
  // After it, the same on every rank: why the tensors do not go together.
  std::optional<Error> disagreement() const;
  bool all_on_one_kind_of_device() const;
  // The all_gather of contents, in buffers that are where the tensor is; `counts`: the bytes of
  // each rank. Throws c10::Error when there is no memory.
  void exchange(Operation& operation, std::vector<std::int64_t>& counts);
  // After it: puts the sum of all into the tensor. Throws c10::Error.
  void finish();

  const at::Tensor& tensor() const { return tensor_; }
  // What the two operations read and write.
  std::vector<at::Tensor> buffers() const { return {descriptions_, packed_, gathered_}; }

 private:
  const std::int64_t* description(int rank) const;
  std::int64_t elements(int rank) const { return description(rank)[0]; }  // specified ones
  std::int64_t bytes(int rank) const;

  const at::Tensor tensor_;
  const int rank_, size_;
  std::int64_t value_bytes_ = 0;  // of one specified element, in the type that is added up
  at::Tensor descriptions_, packed_, gathered_;
};

}  // namespace altorch::backend
