// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/sparse_sum.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <sstream>

#include "backend/c10d/tensors.h"

namespace altorch::backend {
namespace {

// A description: the number of specified elements, then what must be alike.
constexpr std::int64_t kType = 1, kOnGpu = 2, kSparse = 3, kDimensions = 4, kSizes = 5;
constexpr std::int64_t kMostDimensions = 16;
constexpr std::int64_t kFields = kSizes + kMostDimensions;
constexpr std::int64_t kAlignment = 16;  // of a rank's bytes: that of the largest type

// torch coalesces no others.
bool can_be_summed(at::ScalarType type) {
  return type == at::kBool || type == at::kHalf || type == at::kBFloat16 || type == at::kByte ||
         type == at::kChar || type == at::kShort || type == at::kInt || type == at::kLong ||
         type == at::kFloat || type == at::kDouble || type == at::kComplexFloat || type == at::kComplexDouble;
}

at::ScalarType summed_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

void check(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kSparse)
    refuse("the tensor is not sparse in coordinates (COO); call to_sparse_coo() or to_dense() first");
  if (!tensor.is_cpu() && !tensor.is_cuda()) {
    refuse("the tensor is on device " + tensor.device().str() +
           ", and altorch carries CPU and CUDA tensors; move it with .cpu()");
  }
  if (!can_be_summed(tensor.scalar_type())) {
    refuse(std::string("torch cannot add up sparse tensors of type ") + c10::toString(tensor.scalar_type()) +
           "; convert the tensor");
  }
  if (tensor.dim() > kMostDimensions) {
    refuse("a sparse tensor of " + std::to_string(tensor.dim()) + " dimensions was given, and " +
           std::to_string(kMostDimensions) + " are the most");
  }
}

at::Tensor sparse_of(const at::Tensor& indices, const at::Tensor& values, const at::Tensor& like,
                     bool coalesced) {
  // Unchecked: the parts come from tensors that were valid, and a check makes the host wait for a
  // GPU.
  return at::_sparse_coo_tensor_unsafe(indices, values, like.sizes(),
                                       like.options().dtype(values.scalar_type()), coalesced);
}

std::string in_words(const std::int64_t* description) {
  std::ostringstream text;
  text << "a sparse " << name_of(static_cast<DType>(description[kType])) << " tensor on a "
       << (description[kOnGpu] ? "GPU" : "CPU") << " of shape (";
  for (std::int64_t i = 0; i < description[kDimensions]; ++i)
    text << (i > 0 ? ", " : "") << description[kSizes + i];
  text << ") with " << description[kSparse] << " sparse dimensions";
  return text.str();
}

}  // namespace

SparseSum::SparseSum(at::Tensor tensor, int rank, int size)
    : tensor_(std::move(tensor)), rank_(rank), size_(size) {
  check(tensor_);
  const at::AutoDispatchBelowADInplaceOrView no_autograd;  // and no care for inference tensors
  // Duplicates go before the trip; those of half types are added up without rounding in between.
  const at::ScalarType type = summed_type(tensor_.scalar_type());
  const at::Tensor coalesced =
      tensor_.is_coalesced()
          ? tensor_
          : sparse_of(tensor_._indices(), tensor_._values().to(type), tensor_, false).coalesce();
  const at::Tensor values = coalesced._values().to(type);
  value_bytes_ = static_cast<std::int64_t>(values.element_size());
  for (const std::int64_t extent : tensor_.sizes().slice(static_cast<std::size_t>(tensor_.sparse_dim())))
    value_bytes_ *= extent;

  descriptions_ = at::zeros({size_ + 1, kFields}, at::kLong);  // of all, then the own one to send
  auto* mine = descriptions_.data_ptr<std::int64_t>() + size_ * kFields;
  mine[0] = coalesced._nnz();
  mine[kType] = static_cast<std::int64_t>(dtype_of(tensor_));
  mine[kOnGpu] = tensor_.is_cuda();
  mine[kSparse] = tensor_.sparse_dim();
  mine[kDimensions] = tensor_.dim();
  std::copy(tensor_.sizes().begin(), tensor_.sizes().end(), mine + kSizes);

  packed_ = at::empty({bytes(size_)}, tensor_.options().layout(at::kStrided).dtype(at::kByte));
  std::int64_t end = 0;
  for (const at::Tensor& part : {coalesced._indices(), values}) {
    const auto length = static_cast<std::int64_t>(part.nbytes());
    if (length == 0) continue;
    packed_.narrow(0, end, length).view(part.scalar_type()).view(part.sizes()).copy_(part);
    end += length;
  }
}

const std::int64_t* SparseSum::description(int rank) const {
  return descriptions_.data_ptr<std::int64_t>() + rank * kFields;
}

std::int64_t SparseSum::bytes(int rank) const {
  const std::int64_t each =
      tensor_.sparse_dim() * static_cast<std::int64_t>(sizeof(std::int64_t)) + value_bytes_;
  return (elements(rank) * each + kAlignment - 1) / kAlignment * kAlignment;
}

void SparseSum::describe(Operation& operation) {
  operation.kind = OpKind::kAllGather;
  operation.dtype = DType::kInt64;
  operation.input = description(size_);
  operation.output = descriptions_.data_ptr();
  operation.count = kFields;
}

std::optional<Error> SparseSum::disagreement() const {
  for (int rank = 1; rank < size_; ++rank) {
    const std::int64_t *one = description(0), *other = description(rank);
    if (std::equal(one + 1, one + kFields, other + 1)) continue;
    return Error(ErrorKind::kMismatch,
                 "rank 0 of the group has " + in_words(one) + ", rank " + std::to_string(rank) + " has " +
                     in_words(other) + "; all ranks must give tensors that differ only in their elements");
  }
  return std::nullopt;
}

bool SparseSum::all_on_one_kind_of_device() const {
  for (int rank = 1; rank < size_; ++rank) {
    if (description(rank)[kOnGpu] != description(0)[kOnGpu]) return false;
  }
  return true;
}

void SparseSum::exchange(Operation& operation, std::vector<std::int64_t>& counts) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  counts.clear();
  std::int64_t total = 0;
  for (int rank = 0; rank < size_; ++rank) {
    counts.push_back(bytes(rank));
    total += counts.back();
  }
  gathered_ = at::empty({total}, packed_.options());
  operation.kind = OpKind::kAllGather;
  operation.dtype = DType::kUInt8;
  operation.input = packed_.data_ptr();
  operation.output = gathered_.data_ptr();
  operation.count = packed_.numel();
}

void SparseSum::finish() {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const std::int64_t sparse = tensor_.sparse_dim();
  const at::ScalarType type = summed_type(tensor_.scalar_type());
  std::vector<at::Tensor> indices, values;
  std::int64_t begin = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const std::int64_t number = elements(rank);
    std::vector<std::int64_t> shape = {number};
    for (const std::int64_t extent : tensor_.sizes().slice(static_cast<std::size_t>(sparse)))
      shape.push_back(extent);
    const std::int64_t index_bytes = sparse * number * static_cast<std::int64_t>(sizeof(std::int64_t));
    indices.push_back(gathered_.narrow(0, begin, index_bytes).view(at::kLong).view({sparse, number}));
    values.push_back(gathered_.narrow(0, begin + index_bytes, number * value_bytes_).view(type).view(shape));
    begin += bytes(rank);
  }
  at::Tensor sum = sparse_of(at::cat(indices, 1), at::cat(values, 0), tensor_, false).coalesce();
  if (type != tensor_.scalar_type())
    sum = sparse_of(sum._indices(), sum._values().to(tensor_.scalar_type()), tensor_, true);
  at::Tensor target = tensor_;
  target.copy_(sum);
  if (!target.is_inference()) target.unsafeGetTensorImpl()->bump_version();
}

}  // namespace altorch::backend
