// SPDX-License-Identifier: BSD-3-Clause
#include "device/kernels/names.h"

#include <cctype>

#include "base/error.h"
#include "device/kernels/source.inc"

namespace altorch {
namespace {

// As reduce.cuh and its companions call them; nullptr: a type that no kernel reduces.
constexpr EnumTable<DType, const char*> kNumbers(nullptr,
                                                 {
                                                     {DType::kUInt8, "Integer<unsigned char, unsigned>"},
                                                     {DType::kInt8, "Integer<signed char, unsigned>"},
                                                     {DType::kUInt16, "Integer<unsigned short, unsigned>"},
                                                     {DType::kInt16, "Integer<short, unsigned>"},
                                                     {DType::kUInt32, "Integer<unsigned, unsigned>"},
                                                     {DType::kInt32, "Integer<int, unsigned>"},
                                                     {DType::kUInt64, "Integer<u64, u64>"},
                                                     {DType::kInt64, "Integer<i64, u64>"},
                                                     {DType::kBool, "Bool"},
                                                     {DType::kFloat16, "Float16"},
                                                     {DType::kBFloat16, "BFloat16"},
                                                     {DType::kFloat32, "Plain<float>"},
                                                     {DType::kFloat64, "Plain<double>"},
                                                     {DType::kComplex64, "Complex<float>"},
                                                     {DType::kComplex128, "Complex<double>"},
                                                     {DType::kFloat8E4M3FN, "Float8E4M3FN"},
                                                     {DType::kFloat8E5M2, "Float8E5M2"},
                                                 });

// The number types of exact sums.
constexpr EnumTable<DType, const char*> kExactNumbers(nullptr,
                                                      {
                                                          {DType::kFloat16, "ExactFloat16"},
                                                          {DType::kBFloat16, "ExactBFloat16"},
                                                          {DType::kFloat32, "ExactFloat32"},
                                                          {DType::kFloat64, "ExactFloat64"},
                                                          {DType::kFloat8E4M3FN, "ExactFloat8E4M3FN"},
                                                          {DType::kFloat8E5M2, "ExactFloat8E5M2"},
                                                      });

// `arguments`: of the function's template, or nothing.
Kernel kernel(const std::string& function, const std::string& job, const std::string& arguments = "") {
  std::string symbol = "altorch_" + function + arguments;
  for (char& letter : symbol) {
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  }
  return {symbol, "extern \"C\" __global__ void __launch_bounds__(512, 2) " + symbol + "(const altorch::" +
                      job + " job) {\n  using namespace altorch::kernels;\n  AL_WAIT_FOR_PRIMARY();\n  run_" +
                      function + arguments + "(job);\n}\n"};
}

const char* code_name(bool float8) { return float8 ? "Float8Code" : "Int8Code"; }

Kernel instance(const std::string& function, const std::string& job, DType dtype, ReduceOp op) {
  const char* const number = is_exact(op) ? kExactNumbers[dtype] : kNumbers[dtype];
  const auto combines = binary_op_of(op, dtype);
  if (!number || !combines) {
    throw Error(ErrorKind::kInternal,
                std::string("no kernel makes a ") + name_of(op) + " of " + name_of(dtype) + ".");
  }
  return kernel(
      function, job,
      std::string("<") + number + ", " + name_of(*combines) + (is_mean(op) ? ", true>" : ", false>"));
}

}  // namespace

Kernel reduction_kernel(DType dtype, ReduceOp op) { return instance("reduce", "DeviceReduction", dtype, op); }
Kernel ll_reduction_kernel(DType dtype, ReduceOp op) {
  return instance("ll_reduce", "LlExchange", dtype, op);
}
Kernel two_shot_kernel(DType dtype, ReduceOp op) {
  return instance("two_shot_reduce", "TwoShotReduce", dtype, op);
}
Kernel one_shot_kernel(DType dtype, ReduceOp op) {
  return instance("one_shot_reduce", "OneShotReduce", dtype, op);
}
Kernel window_update_kernel(DType dtype, ReduceOp op) {
  return instance("window_update", "WindowUpdate", dtype, op);
}
Kernel ll128_reduce_kernel(DType dtype, ReduceOp op) {
  if (is_quantized(op)) {
    return kernel("ll128_reduce", "Ll128Reduce",
                  std::string("<Quantized<") + kNumbers[dtype] + ", " + code_name(is_float8_sum(op)) +
                      ">, Sum" + (is_mean(op) ? ", true>" : ", false>"));
  }
  return instance("ll128_reduce", "Ll128Reduce", dtype, op);
}
Kernel ll_norm_kernel(DType dtype) { return instance("ll_norm", "NormedSum", dtype, ReduceOp::kSum); }
Kernel quantized_chunks_kernel(DType dtype, bool float8) {
  return kernel("quantized_chunks", "QuantizedChunks",
                std::string("<") + kNumbers[dtype] + ", " + code_name(float8) + ">");
}
Kernel row_sum_kernel(DType dtype) {
  return kernel("sum_rows", "RowSum", std::string("<") + kNumbers[dtype] + ">");
}
Kernel index_pack_kernel() { return kernel("pack_indices", "IndexPack"); }
Kernel find_slots_kernel() { return kernel("find_slots", "TokenTable"); }
Kernel row_pack_kernel() { return kernel("pack_rows", "RowPack"); }
Kernel row_scatter_kernel() { return kernel("scatter_rows", "RowScatter"); }
Kernel window_move_kernel() { return kernel("window_move", "WindowMove"); }
Kernel window_wait_kernel() { return kernel("window_wait", "WindowWait"); }
Kernel window_number_kernel() { return kernel("window_number", "WindowNumber"); }
Kernel ll_move_kernel() { return kernel("ll_move", "LlExchange"); }
Kernel pair_exchange_kernel() { return kernel("exchange_pairs", "PairExchange"); }
Kernel exchange_kernel() { return kernel("exchange", "Exchange"); }
Kernel ll128_exchange_kernel() { return kernel("ll128_exchange", "Ll128Exchange"); }
Kernel block_copies_kernel() { return kernel("copy_blocks", "BlockCopies"); }
Kernel poison_kernel() { return kernel("poison_aborted", "PoisonJob"); }

std::string kernel_source() {
  return std::string(kJobsSource) + kTokenJobsSource + "namespace altorch::kernels {\n" + kFloat8Source +
         "}\n" + kNumbersSource + "namespace altorch::kernels {\n" + kExactSumSource + "}\n" + kExactSource +
         kReduceSource + kLlSource + kPairsSource + kPoisonSource + kRoundsSource + kPartsSource +
         kCopiesSource + kOneShotSource + kTwoShotSource + kExchangeSource + kLl128Source +
         kLl128ReduceSource + kLl128AllPeersSource + kLl128TwoShotSource + kLl128ExchangeSource +
         kQuantizedSource + kQuantizedChunksSource + kLl128QuantizedSource + kLlNormSource +
         kTokenSlotsSource + kTokenRowsSource + kWindowSource;
}

// What is used once and again in training and inference; another type waits for the compiler once.
std::vector<Kernel> kernels_ahead() {
  std::vector<Kernel> all = {ll_move_kernel(),        pair_exchange_kernel(), exchange_kernel(),
                             ll128_exchange_kernel(), poison_kernel(),        window_move_kernel(),
                             window_wait_kernel(),    window_number_kernel(), index_pack_kernel(),
                             find_slots_kernel(),     row_pack_kernel(),      row_scatter_kernel(),
                             block_copies_kernel()};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                            DType::kInt32, DType::kInt64, DType::kUInt8}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax}) {
      if (op == ReduceOp::kAvg && is_integral(dtype)) continue;
      for (const auto make :
           {reduction_kernel, ll_reduction_kernel, two_shot_kernel, one_shot_kernel, ll128_reduce_kernel})
        all.push_back(make(dtype, op));
      if (op != ReduceOp::kAvg) all.push_back(window_update_kernel(dtype, op));
    }
    if (!is_floating(dtype)) continue;
    all.push_back(ll_norm_kernel(dtype));
    all.push_back(row_sum_kernel(dtype));
  }
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const bool float8 : {false, true}) {
      all.push_back(quantized_chunks_kernel(dtype, float8));
      for (const bool mean : {false, true})
        all.push_back(ll128_reduce_kernel(dtype, quantized_sum(float8, mean)));
    }
  }
  return all;
}

}  // namespace altorch
