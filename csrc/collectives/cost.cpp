#include "collectives/cost.h"

#include <algorithm>
#include <bit>

namespace altorch::cost {
namespace {

int floor_log2(int p) { return std::bit_width(static_cast<unsigned>(p)) - 1; }
int ceil_log2(int p) { return std::bit_width(static_cast<unsigned>(p - 1)); }
bool is_folded(int p) { return !std::has_single_bit(static_cast<unsigned>(p)); }

// Guests hand the vector to their hosts before and get the result after.
double folding(int p, double n, const CostModel& m) {
  return is_folded(p) ? 2 * m.alpha + n * (2 * m.beta + m.gamma) : 0;
}

}  // namespace

double one_after_another(int p, double n, const CostModel& m) { return (p - 1) * (m.alpha + n * m.beta); }

double vectors_summed(int p, double n, const CostModel& m) {
  return (p - 1) * (m.alpha + n * (m.beta + m.gamma));
}

double all_reduce_recursive_doubling(int p, double n, const CostModel& m) {
  return floor_log2(p) * (m.alpha + n * (m.beta + m.gamma)) + folding(p, n, m);
}

double all_reduce_rabenseifner(int p, double n, const CostModel& m) {
  const double members = 1 << floor_log2(p);
  const double share = (members - 1) / members * n;
  return 2 * floor_log2(p) * m.alpha + share * (2 * m.beta + m.gamma) + folding(p, n, m);
}

double vector_by_blocks(int p, double n, const CostModel& m) {
  return (p - 1) * (2 * m.alpha + n / p * (2 * m.beta + m.gamma));
}

double reduce_binomial(int p, double n, const CostModel& m) {
  return ceil_log2(p) * (m.alpha + n * (m.beta + m.gamma));
}

double broadcast_binomial(int p, double n, const CostModel& m) {
  return ceil_log2(p) * (m.alpha + n * m.beta);
}

double broadcast_scatter_all_gather(int p, double n, const CostModel& m) {
  return (ceil_log2(p) + p - 1) * m.alpha + 2.0 * (p - 1) / p * n * m.beta;
}

double broadcast_pairwise(int p, double n, const CostModel& m) { return 2 * one_after_another(p, n / p, m); }

double all_gather_bruck(int p, double n, const CostModel& m) {
  return ceil_log2(p) * m.alpha + (p - 1) * n * m.beta;
}

double all_gather_recursive_doubling(int p, double n, const CostModel& m) {
  if (!is_folded(p)) return floor_log2(p) * m.alpha + (p - 1) * n * m.beta;
  // One block to the host, then in each round up to two blocks for every member, then all of them back.
  const int members = 1 << floor_log2(p);
  double blocks = 1 + p;
  for (int distance = 1; distance < members; distance *= 2) {
    blocks += distance + std::min(distance, p - members);
  }
  return (floor_log2(p) + 2) * m.alpha + blocks * n * m.beta;
}

double all_to_all_bruck(int p, double n, const CostModel& m) {
  double cost = 0;
  for (int distance = 1; distance < p; distance *= 2) {
    // Blocks whose number has this bit set.
    const int blocks = p / (2 * distance) * distance + std::max(0, p % (2 * distance) - distance);
    cost += m.alpha + blocks * n * m.beta;
  }
  return cost;
}

double tree_of_blocks(int p, double n, const CostModel& m) {
  return ceil_log2(p) * m.alpha + (p - 1) * n * m.beta;
}

double barrier_dissemination(int p, double, const CostModel& m) { return ceil_log2(p) * m.alpha; }

}  // namespace altorch::cost
