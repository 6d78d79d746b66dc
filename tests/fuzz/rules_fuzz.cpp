// ALTORCH_ROUTE.
#include <cstdlib>

#include "engine/route/rules.h"
#include "fuzz/target.h"

namespace altorch {

FUZZ_TARGET(rules, 3000) {
  const char* const before = std::getenv("ALTORCH_ROUTE");
  const std::optional<std::string> kept = before ? std::optional<std::string>(before) : std::nullopt;
  struct PutBack {
    const std::optional<std::string>& value;
    ~PutBack() { value ? setenv("ALTORCH_ROUTE", value->c_str(), 1) : unsetenv("ALTORCH_ROUTE"); }
  } put_back{kept};
  setenv("ALTORCH_ROUTE", input.piece().value_or("").c_str(), 1);
  const Rules rules;
  for (const Rules::Rule& rule : rules.all()) {
    fuzz::require(rule.from >= 0 && rule.below >= 0, "sizes are not negative");
    fuzz::require(rule.algorithm || !rule.whole.empty() || !rule.gpu_route.empty(),
                  "a rule chooses something");
  }
}

}  // namespace altorch
