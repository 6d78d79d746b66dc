#include "device/kernels/names.h"

#include "common/error.h"
#include "device/kernels/source.inc"

namespace altorch {
namespace {

// As reduce.cuh and its companions call them; nullptr: a type that no kernel reduces.
constexpr EnumTable<DType, const char*> kNumbers(
    nullptr, {
                 {DType::kUInt8, "Integer<unsigned char, unsigned>"},
                 {DType::kInt8, "Integer<signed char, unsigned>"},
                 {DType::kUInt16, "Integer<unsigned short, unsigned>"},
                 {DType::kInt16, "Integer<short, unsigned>"},
                 {DType::kUInt32, "Integer<unsigned, unsigned>"},
                 {DType::kInt32, "Integer<int, unsigned>"},
                 {DType::kUInt64, "Integer<unsigned long long, unsigned long long>"},
                 {DType::kInt64, "Integer<long long, unsigned long long>"},
                 {DType::kBool, "Bool"},
                 {DType::kFloat16, "Float16"},
                 {DType::kBFloat16, "BFloat16"},
                 {DType::kFloat32, "Plain<float>"},
                 {DType::kFloat64, "Plain<double>"},
                 {DType::kComplex64, "Complex<float>"},
                 {DType::kComplex128, "Complex<double>"},
             });

const std::string kSpace = "altorch::kernels::";

std::string instance(const char* kernel, DType dtype, ReduceOp op) {
  const char* const number = kNumbers[dtype];
  const auto combines = binary_op_of(op, dtype);
  if (!number || !combines) {
    throw Error(ErrorKind::kInternal,
                std::string("no kernel makes a ") + name_of(op) + " of " + name_of(dtype) + ".");
  }
  return kSpace + kernel + "<" + kSpace + number + ", " + kSpace + name_of(*combines) +
         (op == ReduceOp::kAvg ? ", true>" : ", false>");
}

}  // namespace

std::string reduction_kernel(DType dtype, ReduceOp op) { return instance("reduce", dtype, op); }
std::string small_reduction_kernel(DType dtype, ReduceOp op) { return instance("small_reduce", dtype, op); }
std::string bulk_reduction_kernel(DType dtype, ReduceOp op) { return instance("bulk_reduce", dtype, op); }
std::string small_move_kernel() { return kSpace + "small_move"; }
std::string pair_exchange_kernel() { return kSpace + "exchange_pairs"; }
std::string bulk_move_kernel() { return kSpace + "bulk_move"; }
std::string poison_kernel() { return kSpace + "poison_given_up"; }

std::string kernel_source() {
  return std::string(kNumbersSource) + kReduceSource + kSmallSource + kPairsSource + kPoisonSource +
         kBulkSource;
}

}  // namespace altorch
