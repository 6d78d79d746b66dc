// SPDX-License-Identifier: BSD-3-Clause
#include "select/rules.h"

#include <algorithm>
#include <mutex>

#include "base/env.h"
#include "base/shape.h"

namespace altorch {
namespace {

// Never destroyed: a thread may make a group while the process ends.
std::mutex& tuned_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
std::string& tuned_text() {
  static auto& text = *new std::string;
  return text;
}
std::string tuned_rules() {
  const std::lock_guard lock(tuned_mutex());
  return tuned_text();
}

}  // namespace

Rules::Rules() {
  add(setting("ALTORCH_ROUTE"), /*tuned=*/false);
  add(tuned_rules(), /*tuned=*/true);
}

void set_tuned_rules(const std::string& text) {
  Rules::check(text);
  const std::lock_guard lock(tuned_mutex());
  tuned_text() = text;
}

bool Rules::Rule::applies(const Operation& operation, std::int64_t bytes, GroupSize group) const {
  // A send and its receive go the same way, and a rank may have both in one batch.
  const bool both_messages = kind && is_message(*kind) && operation.is_message();
  if (kind && *kind != operation.kind && !both_messages) return false;
  if (ranks != 0 && ranks != group.ranks) return false;
  if (nodes != 0 && nodes != group.nodes) return false;
  return is_for_all_sizes() || (all_know_sizes(operation.kind) && bytes >= from && bytes < below);
}

const Rules::Rule* Rules::gpu_rule_for_all(std::span<const Operation> operations, GroupSize group) const {
  for (const Rule& rule : overrides_) {
    const auto applies = [&](const Operation& each) {
      return rule.applies(each, payload_bytes(each, group.ranks), group);
    };
    if (!rule.gpu_route.empty() && std::ranges::all_of(operations, applies)) return &rule;
  }
  return nullptr;
}

const Rules::Rule* Rules::gpu_rule(const Operation& operation, GroupSize group) const {
  return gpu_rule_for_all({&operation, 1}, group);
}

const Rules::Rule* Rules::gpu_rule(std::span<const Operation> operations, GroupSize group) const {
  const Rule* const first = gpu_rule(operations.front(), group);
  const auto is_named = [&](const Operation& each) {
    const Rule* const own = gpu_rule(each, group);
    return own && own->gpu_route == first->gpu_route;
  };
  if (!first || std::ranges::all_of(operations.subspan(1), is_named)) return first;
  return gpu_rule_for_all(operations, group);
}

std::string_view Rules::gpu_route(std::span<const Operation> operations, GroupSize group) const {
  const Rule* rule = gpu_rule(operations, group);
  return rule && !rule->tuned ? rule->gpu_route : std::string_view();
}

std::string_view Rules::tuned_gpu_route(const Operation& operation, GroupSize group) const {
  const Rule* rule = gpu_rule(operation, group);
  return rule && rule->tuned ? rule->gpu_route : std::string_view();
}

std::string_view Rules::gpu_protocol(const Operation& operation, GroupSize group,
                                     std::string_view route) const {
  const Rule* rule = gpu_rule(operation, group);
  return rule && rule->gpu_route == route ? rule->protocol : std::string_view();
}

std::int64_t segment_elements(DType dtype) {
  static const auto bytes = static_cast<std::int64_t>(numeric_setting("ALTORCH_SEGMENT_BYTES"));
  return std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(size_of(dtype)));
}

}  // namespace altorch
