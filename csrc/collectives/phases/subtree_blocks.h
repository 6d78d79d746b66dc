// SPDX-License-Identifier: BSD-3-Clause
// Blocks of equal size on their way through a binomial tree: gather and scatter.
//
// Ranks in a subtree count from the root, so the root, which keeps blocks in rank order, finds
// those of a subtree in one run of memory or, around the end, in two. They are two messages then,
// on both sides.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collectives/phases/binomial_tree.h"
#include "collectives/schedule_builder.h"

namespace altorch {

class SubtreeBlocks {
 public:
  // `all`: on the root, the region that holds every block in rank order. Other ranks hold those of
  // their subtree in `own_subtree`, their own one first.
  SubtreeBlocks(const Problem& problem, const BinomialTree& tree, Region all, const Slice& own_subtree)
      : size_(problem.size),
        root_(problem.root),
        count_(problem.count),
        tree_(tree),
        all_(all),
        own_(own_subtree) {}

  // Calls use(slice) for each run of the blocks of relative ranks first..first+n-1.
  template <class Use>
  void for_each_run(int first, int n, Use use) const {
    const int before_end =
        std::clamp(size_ - root_ - first, 0, n);  // relative ranks whose rank is root or above
    if (before_end > 0) use(run(first, before_end));
    if (before_end < n) use(run(first + before_end, n - before_end));
  }

 private:
  Slice run(int first, int n) const {
    if (tree_.parent >= 0) return part(own_, (first - tree_.relative) * count_, n * count_);
    return {all_, wrap(first + root_, size_) * count_, n * count_};
  }

  const int size_, root_;
  const std::int64_t count_;
  const BinomialTree& tree_;
  const Region all_;
  const Slice own_;
};

}  // namespace altorch
