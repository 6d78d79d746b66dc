// SPDX-License-Identifier: BSD-3-Clause
// ALTORCH_ROUTE.
#include "fuzz/target.h"
#include "fuzz/variable.h"
#include "select/rules.h"

namespace altorch {

FUZZ_TARGET(rules, 3000) {
  const fuzz::Variable variable("ALTORCH_ROUTE", input.piece().value_or(""));
  const Rules rules;
  for (const Rules::Rule& rule : rules.all()) {
    fuzz::require(rule.from >= 0 && rule.below >= 0, "sizes are not negative");
    fuzz::require(rule.nodes >= 0 && (rule.nodes == 0 || rule.ranks > 0), "nodes are those of ranks");
    fuzz::require(rule.algorithm || !rule.native.empty() || !rule.gpu_route.empty(),
                  "a rule chooses something");
  }
}

}  // namespace altorch
