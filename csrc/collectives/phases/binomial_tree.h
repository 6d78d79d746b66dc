// SPDX-License-Identifier: BSD-3-Clause
// The binomial tree: a rank's place in it, seen from the rank.
//
// Relative to the root (relative = (rank - root) mod p) the parent of v is v without its lowest set
// bit, and the subtree of v is the run v, v+1, ... up to that bit's length or the last rank. So it
// has ceil(log2 p) levels, and all that passes through a rank lies side by side.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/phases/blocks.h"

namespace altorch {

struct BinomialTree {
  struct Child {
    int rank;
    int relative;  // first of its subtree
    int subtree;   // ranks in it, itself included
  };

  BinomialTree(int rank, int size, int root) : relative(wrap(rank - root, size)) {
    int reach = 1;  // the lowest set bit of `relative`; for the root, where the tree ends
    while (reach < size && (relative & reach) == 0) reach *= 2;
    subtree = std::min(reach, size - relative);
    if (relative != 0) parent = wrap(relative - reach + root, size);
    for (int half = reach / 2; half > 0; half /= 2) {
      const int child = relative + half;
      if (child < size) children.push_back({wrap(child + root, size), child, std::min(half, size - child)});
    }
  }

  int relative;
  int subtree = 1;
  int parent = -1;              // -1: this is the root
  std::vector<Child> children;  // largest subtree first
};

}  // namespace altorch
