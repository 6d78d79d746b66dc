// SPDX-License-Identifier: BSD-3-Clause
// From tensors to buffers: the checks that every operation makes, and staging for memory that is
// not one block.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/operation.h"

namespace altorch::backend {

// Throws Error(kInvalidType) for a type that altorch does not know (quantised ones, for instance).
DType dtype_of(const at::Tensor& tensor);
at::ScalarType scalar_type_of(DType type);

// Throws Error(kInvalidArgument) with this sentence.
[[noreturn]] inline void refuse(const std::string& message) {
  throw Error(ErrorKind::kInvalidArgument, message);
}

// The CUDA device of the first tensor that is on one, else kHostDevice. Takes tensors and lists
// that are not checked yet.
inline int cuda_device_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda() ? tensor.get_device() : kHostDevice;
}
template <typename Element>
int cuda_device_of(const std::vector<Element>& list) {
  for (const Element& element : list) {
    if (const int device = cuda_device_of(element); device != kHostDevice) return device;
  }
  return kHostDevice;
}
template <typename First, typename... Others>
int cuda_device_of(const First& first, const Others&... others) requires(sizeof...(others) > 0) {
  const int device = cuda_device_of(first);
  return device != kHostDevice ? device : cuda_device_of(others...);
}

// A dense CPU or CUDA tensor of a known type; throws Error(kInvalidArgument) that names `what`
// otherwise.
void check_tensor(const at::Tensor& tensor, const char* what);
// c10d passes lists of tensors, one per device; here there is one.
const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const char* what);
void check_same_dtype(const at::Tensor& tensor, const at::Tensor& like, const char* what);

void check_numel(const at::Tensor& tensor, std::int64_t expected, const char* what, const char* as);
// `lists` holds one list with a tensor per rank, all of `like`'s type.
void check_list(const std::vector<std::vector<at::Tensor>>& lists, int size, const at::Tensor& like,
                const char* what);
void check_pairs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                 const char* what);
// Elements for each rank, from split sizes along the first dimension (empty: even).
std::vector<std::int64_t> split_counts(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                                       int size, const char* what);

// Whether the elements lie in memory as the engine reads them.
bool is_plain(const at::Tensor& tensor);

// One block of memory that stands for a tensor, or for a list of tensors one after another. Where
// the memory is not one block already, it is copied: load() before the operation, store() after it.
class Block {
 public:
  explicit Block(const at::Tensor& tensor);
  // `copy` stands for the tensor, and holds its values already.
  Block(const at::Tensor& tensor, at::Tensor copy);
  // All of one type; may be empty.
  explicit Block(const std::vector<at::Tensor>& tensors);

  void load();
  // Throws Error(kInvalidArgument) when store() could not write: elements that share memory.
  void check_storable() const;
  // Any thread.
  void store() const;
  bool staged() const { return staged_; }
  void* data() const { return block_.defined() ? block_.data_ptr() : nullptr; }
  std::int64_t numel() const { return block_.defined() ? block_.numel() : 0; }
  const at::Tensor& tensor() const { return block_; }

 private:
  std::vector<at::Tensor> parts_;  // only where staged
  at::Tensor block_;
  bool staged_ = false;
};

// Which of the tensors must be copied so that each keeps its values while those before it are
// written: of those that share memory, perhaps by way of others, all but the first.
std::vector<bool> overlapping(const std::vector<at::Tensor>& tensors);

// Elements of each tensor; `even` is set when they are all alike.
std::vector<std::int64_t> counts_of(const std::vector<at::Tensor>& tensors, bool& even);

}  // namespace altorch::backend
