// What ALTORCH_ROUTE says, and the defaults where it says nothing: the transport's own collective, or one of
// our algorithms over its messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/route/defaults.h"

namespace altorch {

// The rules by which routes are chosen. They depend only on what all ranks know alike, so all ranks agree.
// Thread rules: immutable after construction.
class Rules {
 public:
  // Reads ALTORCH_ROUTE; a rule that names no known operation or algorithm throws
  // ErrorKind::kInvalidArgument.
  Rules();

  // `native_offered`: the transport can carry this very call out as a whole.
  Route choose(const Operation& operation, int size, bool native_offered) const;
  // What ALTORCH_ROUTE says of the operation on CUDA tensors: a route of table.h, or nothing.
  std::string_view gpu_route(const Operation& operation, int size) const;

 private:
  struct Rule {
    std::optional<OpKind> kind;  // nothing: "cuda", every operation on CUDA tensors
    std::int64_t from, below;    // payload bytes
    const Algorithm* algorithm;
    std::string_view gpu_route;

    bool applies(OpKind asked, std::int64_t bytes) const {
      return (!kind || *kind == asked) && bytes >= from && bytes < below;
    }
  };
  std::vector<Rule> overrides_;
};

// Elements in one segment of a pipelined algorithm, from ALTORCH_SEGMENT_BYTES.
std::int64_t segment_elements(DType dtype);

}  // namespace altorch
