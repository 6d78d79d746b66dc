// SPDX-License-Identifier: BSD-3-Clause
// MPI's names of what is reduced, as the shim knows them.
#pragma once

#include "base/dtype.h"
#include "base/enum_table.h"
#include "base/reduce_op.h"
#include "transports/mpi/shim/table.h"

namespace altorch::mpi {

// What MPI has no type or operator for.
inline constexpr int kNone = -1;
inline constexpr EnumTable<DType, int> kTypes(kNone, {
                                                         {DType::kUInt8, ALTORCH_MPI_UINT8},
                                                         {DType::kInt8, ALTORCH_MPI_INT8},
                                                         {DType::kUInt16, ALTORCH_MPI_UINT16},
                                                         {DType::kInt16, ALTORCH_MPI_INT16},
                                                         {DType::kUInt32, ALTORCH_MPI_UINT32},
                                                         {DType::kInt32, ALTORCH_MPI_INT32},
                                                         {DType::kUInt64, ALTORCH_MPI_UINT64},
                                                         {DType::kInt64, ALTORCH_MPI_INT64},
                                                         {DType::kBool, ALTORCH_MPI_UINT8},
                                                         {DType::kFloat32, ALTORCH_MPI_FLOAT32},
                                                         {DType::kFloat64, ALTORCH_MPI_FLOAT64},
                                                         {DType::kComplex64, ALTORCH_MPI_COMPLEX64},
                                                         {DType::kComplex128, ALTORCH_MPI_COMPLEX128},
                                                     });

inline constexpr EnumTable<BinaryOp, int> kOperators(kNone, {
                                                                {BinaryOp::kSum, ALTORCH_MPI_SUM},
                                                                {BinaryOp::kProduct, ALTORCH_MPI_PRODUCT},
                                                                {BinaryOp::kMin, ALTORCH_MPI_MIN},
                                                                {BinaryOp::kMax, ALTORCH_MPI_MAX},
                                                                {BinaryOp::kAnd, ALTORCH_MPI_BAND},
                                                                {BinaryOp::kOr, ALTORCH_MPI_BOR},
                                                                {BinaryOp::kXor, ALTORCH_MPI_BXOR},
                                                            });

}  // namespace altorch::mpi
