// SPDX-License-Identifier: BSD-3-Clause
// What ALTORCH_ROUTE says: for host memory an algorithm or native collectives, for CUDA tensors a
// route; what carries windows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/operation.h"
#include "collectives/algorithm.h"
#include "select/sizes.h"
#include "select/world.h"

namespace altorch {

inline constexpr char kByRule[] = "ALTORCH_ROUTE",
                      kTuned[] = "ALTORCH_TUNED";  // reasons for what a rule names

// The rules by which routes are chosen. A rule matches by operation, ranks, nodes and size, which
// are the same on all ranks, so all ranks choose the same route if ALTORCH_ROUTE is the same on all
// ranks.
// Thread rules: immutable after construction.
class Rules {
 public:
  // Reads ALTORCH_ROUTE, and behind it what set_tuned_rules() was given; a rule that names no known
  // operation or algorithm throws ErrorKind::kInvalidArgument.
  Rules();

  // Parses `text` as ALTORCH_ROUTE. Throws ErrorKind::kInvalidArgument if it is not valid.
  static void check(const std::string& text);

  // The route (gpu_route.h) that ALTORCH_ROUTE names for operations on CUDA tensors that are
  // enqueued together, or an empty view. If the rules of the single operations name different
  // routes: that of the first rule that applies to all of them.
  std::string_view gpu_route(std::span<const Operation> operations, GroupSize group) const;
  // The route that the file of ALTORCH_TUNED names for this call, or an empty view. It is tried
  // first; the rows of table.h follow.
  std::string_view tuned_gpu_route(const Operation& operation, GroupSize group) const;
  // The protocol (base/protocol.h) that the first rule that applies names, if it names `route`;
  // else an empty view.
  std::string_view gpu_protocol(const Operation& operation, GroupSize group, std::string_view route) const;

  // The route of windows (table.h) that the first rule names, which is tried first, or an empty
  // view.
  std::string_view window() const { return window_; }

  struct Rule {
    std::optional<OpKind> kind;      // nothing: "cuda", every operation on CUDA tensors; a send or
                                     // recv stands for both
    std::int64_t from, below;        // payload bytes
    const Algorithm* algorithm;      // on host memory, over messages; or null
    std::string_view native;         // the name of NativeCollectives; or empty
    std::string_view gpu_route;      // empty: the rule is for host memory alone
    std::string_view protocol = {};  // of `native`, or of `gpu_route`; empty: the route chooses
    int ranks = 0;                   // of the group; 0: any number
    int nodes = 0;                   // that the group is on; 0: any number
    bool tuned = false;              // from set_tuned_rules()

    bool is_for_host() const { return algorithm || !native.empty(); }
    bool is_for_all_sizes() const { return from == 0 && below == kUnlimited; }
    // `bytes`: payload_bytes(). Ranks know different sizes of an all_to_all, a gather, a scatter,
    // and of messages that are coalesced: a rule with a range of sizes does not apply to these.
    bool applies(const Operation& operation, std::int64_t bytes, GroupSize group) const;
  };
  // In the order of ALTORCH_ROUTE. On host memory, the first rule that applies, and whose choice
  // can carry the call, decides. For CUDA tensors, the first rule that applies decides.
  std::span<const Rule> all() const { return overrides_; }

 private:
  explicit Rules(std::vector<Rule> rules) : overrides_(std::move(rules)) {}
  void add(const std::string& text, bool tuned);
  // The first that applies to each of them, or null.
  const Rule* gpu_rule_for_all(std::span<const Operation> operations, GroupSize group) const;
  const Rule* gpu_rule(const Operation& operation, GroupSize group) const;
  const Rule* gpu_rule(std::span<const Operation> operations, GroupSize group) const;

  std::vector<Rule> overrides_;
  std::string_view window_;
};

// Rules in the syntax of ALTORCH_ROUTE that `altorch tune` wrote, for groups that this process
// makes from now on; empty: none. Throws ErrorKind::kInvalidArgument, and changes nothing then. Any
// thread.
void set_tuned_rules(const std::string& text);

// Elements in one segment of a pipelined algorithm, from ALTORCH_SEGMENT_BYTES.
std::int64_t segment_elements(DType dtype);

}  // namespace altorch
