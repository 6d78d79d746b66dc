// SPDX-License-Identifier: BSD-3-Clause
// The protocols of one route, as rows: the ways in which it exchanges what a call moves. The first
// row that can carry a call, and pays, does so. ALTORCH_ROUTE can name another (cuda=peer/ll128,
// all_reduce=shm/two_steps), which carries what it can. The route and `altorch explain` ask the
// same function.
//
// `Asked`: a Call, or an Operation. `Layout`: how the route divides its memory, the same on all
// ranks. `Id`: the route's name for a row.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/op_kind.h"

namespace altorch {

template <class Asked, class Layout, class Id>
struct Protocol {
  Id id;
  std::string_view name;  // behind the route's name in ALTORCH_ROUTE
  // Why it cannot carry the call, one clause; null: it can.
  const char* (*unsupported_reason)(const Asked& call, const Layout& layout);
  // Why it carries no such call unless ALTORCH_ROUTE names it, one clause; null: it does.
  const char* (*passed_over_reason)(const Asked& call, const Layout& layout) =
      [](const Asked&, const Layout&) -> const char* { return nullptr; };
  // What a rank does, as text.
  std::string (*steps)(const Asked& call, const Layout& layout);
};

// Depends on what all ranks know alike only. `asked`: what ALTORCH_ROUTE names, or empty. Does not
// allocate; any thread. Throws Error(kInternal) where no row can carry the call.
template <class Asked, class Layout, class Id>
const Protocol<Asked, Layout, Id>& protocol_of(std::span<const Protocol<Asked, Layout, Id>> rows,
                                               const std::type_identity_t<Asked>& call,
                                               const std::type_identity_t<Layout>& layout,
                                               std::string_view asked) {
  if (!asked.empty()) {
    for (const auto& row : rows)
      if (row.name == asked && !row.unsupported_reason(call, layout)) return row;
  }
  for (const auto& row : rows) {
    if (!row.unsupported_reason(call, layout) && !row.passed_over_reason(call, layout)) return row;
  }
  throw Error(ErrorKind::kInternal, std::string("no protocol carries ") + name_of(call.kind));
}

template <class Asked, class Layout, class Id>
std::vector<std::string_view> names_of(std::span<const Protocol<Asked, Layout, Id>> rows) {
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.push_back(row.name);
  return names;
}

// What `altorch explain` says of it.
struct ExplainedProtocol {
  std::string name = {};  // empty: the route has one way for all calls
  std::string steps;
  std::vector<std::pair<std::string, std::string>> others = {};  // and why each is not taken
};

template <class Asked, class Layout, class Id>
ExplainedProtocol explain_protocol(std::span<const Protocol<Asked, Layout, Id>> rows,
                                   const std::type_identity_t<Asked>& call,
                                   const std::type_identity_t<Layout>& layout, std::string_view asked) {
  const auto& taken = protocol_of(rows, call, layout, asked);
  ExplainedProtocol said{std::string(taken.name), taken.steps(call, layout)};
  for (const auto& row : rows) {
    if (row.name == taken.name) continue;
    const char* why = row.unsupported_reason(call, layout);
    if (!why && taken.name == asked) why = "a rule names another";
    if (!why) why = row.passed_over_reason(call, layout);
    said.others.emplace_back(row.name, why ? why : "an earlier one serves");
  }
  return said;
}

}  // namespace altorch
