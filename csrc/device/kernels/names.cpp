#include "device/kernels/names.h"

#include "device/kernels/source.inc"

namespace altorch {
namespace {

const char* number_of(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return "Integer<unsigned char, unsigned>";
    case DType::kInt8:
      return "Integer<signed char, unsigned>";
    case DType::kUInt16:
      return "Integer<unsigned short, unsigned>";
    case DType::kInt16:
      return "Integer<short, unsigned>";
    case DType::kUInt32:
      return "Integer<unsigned, unsigned>";
    case DType::kInt32:
      return "Integer<int, unsigned>";
    case DType::kUInt64:
      return "Integer<unsigned long long, unsigned long long>";
    case DType::kInt64:
      return "Integer<long long, unsigned long long>";
    case DType::kBool:
      return "Bool";
    case DType::kFloat16:
      return "Float16";
    case DType::kBFloat16:
      return "BFloat16";
    case DType::kFloat64:
      return "Plain<double>";
    case DType::kComplex64:
      return "Complex<float>";
    case DType::kComplex128:
      return "Complex<double>";
    default:
      return "Plain<float>";
  }
}

// Of bools: a sum and a maximum are "or", a product and a minimum "and".
const char* operator_of(ReduceOp op, bool is_bool) {
  switch (op) {
    case ReduceOp::kProduct:
      return is_bool ? "And" : "Product";
    case ReduceOp::kMin:
      return is_bool ? "And" : "Min";
    case ReduceOp::kMax:
      return is_bool ? "Or" : "Max";
    case ReduceOp::kBand:
      return "And";
    case ReduceOp::kBor:
      return "Or";
    case ReduceOp::kBxor:
      return "Xor";
    default:
      return is_bool ? "Or" : "Sum";
  }
}

const std::string kSpace = "altorch::kernels::";

std::string instance(const char* kernel, DType dtype, ReduceOp op) {
  return kSpace + kernel + "<" + kSpace + number_of(dtype) + ", " + kSpace +
         operator_of(op, dtype == DType::kBool) + (op == ReduceOp::kAvg ? ", true>" : ", false>");
}

}  // namespace

std::string reduction_kernel(DType dtype, ReduceOp op) { return instance("reduce", dtype, op); }
std::string small_reduction_kernel(DType dtype, ReduceOp op) { return instance("small_reduce", dtype, op); }
std::string small_move_kernel() { return kSpace + "small_move"; }
std::string pair_exchange_kernel() { return kSpace + "exchange_pairs"; }
std::string poison_kernel() { return kSpace + "poison_given_up"; }

std::string kernel_source() {
  return std::string(kNumbersSource) + kReduceSource + kSmallSource + kPairsSource + kPoisonSource;
}

}  // namespace altorch
