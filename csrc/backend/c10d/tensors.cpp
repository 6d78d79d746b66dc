// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/tensors.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>

namespace altorch::backend {
namespace {

[[noreturn]] void refuse_type(const std::string& message) { throw Error(ErrorKind::kInvalidType, message); }

}  // namespace

DType dtype_of(const at::Tensor& tensor) {
  // Both name types alike (base/dtype.h).
  static const auto types = [] {
    std::array<std::optional<DType>, static_cast<std::size_t>(c10::ScalarType::NumOptions)> found;
    const auto& named = c10::getStringToDtypeMap();
    for (int each = 0; each < kDTypeCount; ++each) {
      const auto type = static_cast<DType>(each);
      found[static_cast<std::size_t>(named.at(name_of(type)))] = type;
    }
    return found;
  }();
  if (const auto found = types[static_cast<std::size_t>(tensor.scalar_type())]) return *found;
  refuse_type(std::string("tensors of type ") + c10::toString(tensor.scalar_type()) +
              " cannot be communicated; convert the tensor or view it as bytes");
}

at::ScalarType scalar_type_of(DType type) { return c10::getStringToDtypeMap().at(name_of(type)); }

void check_tensor(const at::Tensor& tensor, const char* what) {
  if (!tensor.defined()) refuse(std::string(what) + " is not a defined tensor");
  if (tensor.layout() != at::kStrided) {
    refuse(std::string(what) + " is sparse; call to_dense() first, altorch moves dense tensors only");
  }
  if (!tensor.device().is_cpu() && !tensor.device().is_cuda()) {
    refuse(std::string(what) + " is on device " + tensor.device().str() +
           ", and altorch carries CPU and CUDA tensors; move it with .cpu()");
  }
  dtype_of(tensor);
}

const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const char* what) {
  if (tensors.size() != 1) {
    refuse(std::string(what) + ": one tensor is expected, " + std::to_string(tensors.size()) + " were given");
  }
  check_tensor(tensors[0], what);
  return tensors[0];
}

void check_same_dtype(const at::Tensor& tensor, const at::Tensor& like, const char* what) {
  if (tensor.scalar_type() == like.scalar_type()) return;
  refuse_type(std::string(what) + " has type " + c10::toString(tensor.scalar_type()) + ", expected " +
              c10::toString(like.scalar_type()) + " as the other tensors of the call");
}

void check_numel(const at::Tensor& tensor, std::int64_t expected, const char* what, const char* as) {
  if (tensor.numel() == expected) return;
  refuse(std::string(what) + " has " + std::to_string(tensor.numel()) + " elements, expected " +
         std::to_string(expected) + ": as many as " + as);
}

void check_list(const std::vector<std::vector<at::Tensor>>& lists, int size, const at::Tensor& like,
                const char* what) {
  if (lists.size() != 1)
    refuse(std::string(what) + ": one list is expected, " + std::to_string(lists.size()) + " were given");
  if (static_cast<int>(lists[0].size()) != size) {
    refuse(std::string(what) + " has " + std::to_string(lists[0].size()) +
           " tensors, expected one per rank: " + std::to_string(size));
  }
  for (const at::Tensor& tensor : lists[0]) {
    check_tensor(tensor, what);
    check_same_dtype(tensor, like, what);
  }
}

void check_pairs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                 const char* what) {
  if (outputs.size() == inputs.size()) return;
  refuse(std::string(what) + ": " + std::to_string(outputs.size()) + " outputs for " +
         std::to_string(inputs.size()) + " inputs");
}

std::vector<std::int64_t> split_counts(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                                       int size, const char* what) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    if (rows % size != 0) {
      refuse(std::string(what) + " has " + std::to_string(rows) + " rows, which " + std::to_string(size) +
             " ranks cannot share evenly; give split sizes");
    }
    return std::vector<std::int64_t>(static_cast<std::size_t>(size), tensor.numel() / size);
  }
  if (static_cast<int>(splits.size()) != size) {
    refuse(std::string(what) + ": " + std::to_string(splits.size()) +
           " split sizes were given, expected one per rank: " + std::to_string(size));
  }
  const std::int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  std::int64_t sum = 0;
  std::vector<std::int64_t> counts;
  for (const std::int64_t split : splits) {
    if (split < 0) refuse(std::string(what) + ": a split size is negative");
    sum += split;
    counts.push_back(split * row);
  }
  if (sum != rows) {
    refuse(std::string(what) + " has " + std::to_string(rows) + " rows, but its split sizes add up to " +
           std::to_string(sum));
  }
  return counts;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

Block::Block(const at::Tensor& tensor, at::Tensor copy)
    : parts_({tensor}), block_(std::move(copy)), staged_(true) {}

Block::Block(const at::Tensor& tensor) : staged_(!is_plain(tensor)) {
  if (staged_) parts_ = {tensor};
  block_ = staged_ ? at::empty(tensor.sizes(), tensor.options()) : tensor;
}

Block::Block(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return;
  std::int64_t total = 0;
  bool adjacent = true;
  const char* next = static_cast<const char*>(tensors[0].data_ptr());
  for (const at::Tensor& tensor : tensors) {
    adjacent = adjacent && is_plain(tensor) && (tensor.numel() == 0 || tensor.data_ptr() == next);
    if (tensor.numel() > 0) next = static_cast<const char*>(tensor.data_ptr()) + tensor.nbytes();
    total += tensor.numel();
  }
  // Neighbours by address may still be two allocations; they are one block only within one storage.
  for (const at::Tensor& tensor : tensors) {
    adjacent = adjacent && (tensor.numel() == 0 || tensor.storage().data() == tensors[0].storage().data());
  }
  staged_ = !adjacent;
  if (staged_) parts_ = tensors;
  const at::NoGradGuard no_grad;
  block_ = staged_ || total == 0 ? at::empty({total}, tensors[0].options())
                                 : tensors[0].as_strided({total}, {1}, tensors[0].storage_offset());
}

void Block::load() {
  if (!staged_) return;
  const at::NoGradGuard no_grad;
  if (parts_.size() == 1) {
    block_.view(parts_[0].sizes()).copy_(parts_[0]);
    return;
  }
  std::int64_t offset = 0;
  for (const at::Tensor& part : parts_) {
    block_.narrow(0, offset, part.numel()).copy_(part.reshape({-1}));
    offset += part.numel();
  }
}

void Block::check_storable() const {
  for (const at::Tensor& part : parts_) {
    if (at::has_internal_overlap(part) != at::MemOverlap::Yes) continue;
    refuse(
        "an output tensor's elements share memory, as those of an expanded tensor do, and cannot all be "
        "written; pass a tensor.contiguous() and copy from it");
  }
}

void Block::store() const {
  if (!staged_) return;
  const at::NoGradGuard no_grad;
  std::int64_t offset = 0;
  for (const at::Tensor& part : parts_) {
    // The caller's mode holds on the caller's thread only.
    const c10::InferenceMode mode(part.is_inference() || block_.is_inference());
    part.detach().copy_(block_.flatten().narrow(0, offset, part.numel()).view(part.sizes()));
    offset += part.numel();
  }
}

std::vector<std::int64_t> counts_of(const std::vector<at::Tensor>& tensors, bool& even) {
  std::vector<std::int64_t> counts;
  counts.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) counts.push_back(tensor.numel());
  even = std::all_of(counts.begin(), counts.end(), [&](std::int64_t count) { return count == counts[0]; });
  return counts;
}

std::vector<bool> overlapping(const std::vector<at::Tensor>& tensors) {
  struct Extent {
    const char *begin, *end;
    std::size_t index;
  };
  std::vector<Extent> extents;
  extents.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.numel() == 0) continue;
    std::int64_t last = 0;  // the offset of the element furthest behind
    for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
    const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
    extents.push_back({begin, begin + (last + 1) * static_cast<std::int64_t>(tensor.element_size()), i});
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::pair(a.begin, a.index) < std::pair(b.begin, b.index);
  });
  std::vector<bool> found(tensors.size(), false);
  std::size_t first = 0;  // of those that hang together, the one that is worked on before the others
  const char* reached = nullptr;
  for (const Extent& extent : extents) {
    if (extent.begin >= reached) {
      first = extent.index;
    } else {
      found[std::max(first, extent.index)] = true;
      first = std::min(first, extent.index);
    }
    reached = std::max(reached, extent.end);
  }
  return found;
}

}  // namespace altorch::backend
