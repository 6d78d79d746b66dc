// SPDX-License-Identifier: BSD-3-Clause
// The protocols of one route for CUDA tensors, as rows: how its kernels exchange what a call moves.
// The first row that can carry a call, and pays, does so. ALTORCH_ROUTE can name another
// (cuda=peer/ll128), which carries what it can. The route that runs the kernels and `altorch
// explain` ask the same function.
//
// `Layout`: how the route divides its memory, the same on all ranks. `Id`: the route's name for a
// row.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/operation.h"

namespace altorch {

template <class Layout, class Id>
struct Protocol {
  Id id;
  std::string_view name;  // behind the route's name in ALTORCH_ROUTE
  // Why it cannot carry the call, one clause; null: it can.
  const char* (*unsupported_reason)(const Operation& operation, const Layout& layout);
  // Why it carries no such call unless ALTORCH_ROUTE names it, one clause; null: it does.
  const char* (*passed_over_reason)(const Operation& operation, const Layout& layout) =
      [](const Operation&, const Layout&) -> const char* { return nullptr; };
  // What a rank does, as text.
  std::string (*steps)(const Operation& operation, const Layout& layout);
};

// Depends on what all ranks know alike only. `asked`: what ALTORCH_ROUTE names, or empty. Does not
// allocate; any thread. Throws Error(kInternal) where no row can carry the call.
template <class Layout, class Id>
const Protocol<Layout, Id>& protocol_of(std::span<const Protocol<Layout, Id>> rows,
                                        const Operation& operation, const Layout& layout,
                                        std::string_view asked) {
  if (!asked.empty()) {
    for (const auto& row : rows)
      if (row.name == asked && !row.unsupported_reason(operation, layout)) return row;
  }
  for (const auto& row : rows) {
    if (!row.unsupported_reason(operation, layout) && !row.passed_over_reason(operation, layout)) return row;
  }
  throw Error(ErrorKind::kInternal, std::string("no protocol carries ") + name_of(operation.kind));
}

template <class Layout, class Id>
std::vector<std::string_view> names_of(std::span<const Protocol<Layout, Id>> rows) {
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

template <class Layout, class Id>
ExplainedProtocol explain_protocol(std::span<const Protocol<Layout, Id>> rows, const Operation& operation,
                                   const Layout& layout, std::string_view asked) {
  const auto& taken = protocol_of(rows, operation, layout, asked);
  ExplainedProtocol said{std::string(taken.name), taken.steps(operation, layout)};
  for (const auto& row : rows) {
    if (&row == &taken) continue;
    const char* why = row.unsupported_reason(operation, layout);
    if (!why) why = row.passed_over_reason(operation, layout);
    said.others.emplace_back(row.name, why ? why : "the first that pays is taken");
  }
  return said;
}

}  // namespace altorch
