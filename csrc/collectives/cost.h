// SPDX-License-Identifier: BSD-3-Clause
// What several algorithms cost in the alpha-beta-gamma model, and what the others are made of; see
// algorithm.h for the meaning of p and n.
//
// The formulas are those of the critical path when every rank can send one message and receive one
// at a time, and nothing is cut into segments. tests/cpp/collectives/cost_test.cpp holds them
// against the schedules.
#pragma once

#include "collectives/algorithm.h"

namespace altorch::cost {

// p-1 messages of n bytes in and as many out: linear, ring and pairwise algorithms that move
// blocks.
double one_after_another(int p, double n, const CostModel& model);
// The same, and each is added: reduce_scatter, all_reduce in one shot, reduce linear.
double vectors_summed(int p, double n, const CostModel& model);
// A vector whose blocks are summed on their ranks and go on from there: all_reduce by ring or
// pairwise, reduce pairwise.
double vector_by_blocks(int p, double n, const CostModel& model);
// gather, and scatter, which is the same backwards.
double tree_of_blocks(int p, double n, const CostModel& model);

int floor_log2(int p);
int ceil_log2(int p);
// Whether p is no power of two, so that some ranks are guests of others.
bool is_folded(int p);
// Guests hand the vector to their hosts before and get the result after.
double folding(int p, double n, const CostModel& model);

}  // namespace altorch::cost
