// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/cost.h"

#include <bit>

namespace altorch::cost {

double one_after_another(int p, double n, const CostModel& m) { return (p - 1) * (m.alpha + n * m.beta); }

double vectors_summed(int p, double n, const CostModel& m) {
  return (p - 1) * (m.alpha + n * (m.beta + m.gamma));
}

double vector_by_blocks(int p, double n, const CostModel& m) {
  return (p - 1) * (2 * m.alpha + n / p * (2 * m.beta + m.gamma));
}

double tree_of_blocks(int p, double n, const CostModel& m) {
  return ceil_log2(p) * m.alpha + (p - 1) * n * m.beta;
}

int floor_log2(int p) { return std::bit_width(static_cast<unsigned>(p)) - 1; }
int ceil_log2(int p) { return std::bit_width(static_cast<unsigned>(p - 1)); }
bool is_folded(int p) { return !std::has_single_bit(static_cast<unsigned>(p)); }

double folding(int p, double n, const CostModel& m) {
  return is_folded(p) ? 2 * m.alpha + n * (2 * m.beta + m.gamma) : 0;
}

}  // namespace altorch::cost
