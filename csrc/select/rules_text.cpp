// SPDX-License-Identifier: BSD-3-Clause
// The text of ALTORCH_ROUTE: "all_reduce@4/1:0-64k=peer/ll128,cuda=nccl,window=mpi".
#include <algorithm>

#include "base/error.h"
#include "base/number.h"
#include "base/shape.h"
#include "select/gpu_route.h"
#include "select/rules.h"
#include "select/table.h"
#include "transports/native_collectives.h"

namespace altorch {
namespace {

[[noreturn]] void refuse_rule(const std::string& rule, const std::string& why) {
  throw Error(ErrorKind::kInvalidArgument,
              "ALTORCH_ROUTE: in '" + rule + "', " + why + "; `altorch algorithms` lists what there is");
}

std::int64_t parse_bytes(const std::string& rule, const std::string& text) {
  if (text == "inf") return kUnlimited;
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto value = to_number<std::int64_t>(std::string_view(text).substr(0, digits));
  const std::string unit = text.substr(digits);
  std::int64_t times = unit.empty() ? 1 : 0;
  if (unit == "k" || unit == "K") times = kKiB;
  if (unit == "m" || unit == "M") times = kMiB;
  if (unit == "g" || unit == "G") times = kMiB * kKiB;
  if (!value || times == 0 || *value > kUnlimited / times)
    refuse_rule(rule, "'" + text + "' is not a size (use 64, 4k, 2m, 1g or inf)");
  return *value * times;
}

// `what`: "ranks" or "nodes".
int parse_number_of(const std::string& what, const std::string& rule, const std::string& text) {
  const auto number = to_number<int>(text);
  if (!number || *number < 1)
    refuse_rule(rule, "'" + text + "' is no number of " + what + ", an integer from 1 on");
  return *number;
}

// "16/2": 16 ranks on 2 nodes; "16": on any number of nodes.
void parse_group(const std::string& rule, const std::string& text, Rules::Rule& parsed) {
  const auto slash = text.find('/');
  parsed.ranks = parse_number_of("ranks", rule, text.substr(0, slash));
  if (slash != std::string::npos) parsed.nodes = parse_number_of("nodes", rule, text.substr(slash + 1));
  if (parsed.nodes > parsed.ranks) refuse_rule(rule, "there are more nodes than ranks");
}

std::string gpu_route_names() {
  std::string names;
  for (const GpuRouteRow* row : gpu_route_rows())
    names += (names.empty() ? "" : ", ") + std::string(row->name);
  return names;
}

// "peer", and "ll128" of "peer/ll128"; empty: none.
struct Choice {
  std::string_view route, protocol;
  bool has_protocol;

  explicit Choice(std::string_view text)
      : route(text.substr(0, text.find('/'))), has_protocol(route.size() != text.size()) {
    if (has_protocol) protocol = text.substr(route.size() + 1);
  }
};

std::string_view find_protocol(const std::string& rule, const Choice& choice,
                               std::span<const std::string_view> protocols) {
  if (!choice.has_protocol) return {};
  std::string names;
  for (const std::string_view name : protocols) {
    if (choice.protocol == name) return name;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  refuse_rule(rule, "'" + std::string(choice.protocol) + "' is no protocol of " + std::string(choice.route) +
                        (names.empty() ? ", which has one way for all calls" : " (" + names + ")"));
}

// These leave `parsed` as it is where there is no such route.
void find_gpu_route(const std::string& rule, const std::string& text, Rules::Rule& parsed) {
  const Choice choice(text);
  for (const GpuRouteRow* row : gpu_route_rows()) {
    if (choice.route != row->name) continue;
    parsed.gpu_route = row->name;
    parsed.protocol = find_protocol(rule, choice, row->protocols());
  }
}
void find_native(const std::string& rule, const std::string& text, Rules::Rule& parsed) {
  const Choice choice(text);
  for (const std::string_view name : kNativeNames) {
    if (choice.route != name) continue;
    parsed.native = name;
    const bool has_protocols = name == kShmCollectives && parsed.kind;
    parsed.protocol = find_protocol(
        rule, choice, has_protocols ? shm_protocols(*parsed.kind) : std::span<const std::string_view>());
  }
}

std::string_view find_window_row(const std::string& rule, const std::string& choice) {
  std::string names;
  for (const On on : {On::kHostWindow, On::kGpuWindow}) {
    for (const Row& row : rows_on(on)) {
      if (choice == row.carrier) return row.carrier;
      names += (names.empty() ? "" : ", ") + std::string(row.carrier);
    }
  }
  refuse_rule(rule, "'" + choice + "' is no route of windows (" + names + ")");
}

}  // namespace

void Rules::add(const std::string& text, bool tuned) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(",;", begin), text.size());
    const std::string rule = text.substr(begin, end - begin);
    begin = end + 1;
    if (rule.empty()) continue;
    const auto equals = rule.find('=');
    if (equals == std::string::npos) refuse_rule(rule, "there is no '='");
    const auto colon = rule.find(':');
    const std::string calls = rule.substr(0, std::min(colon, equals));
    const auto at = std::min(calls.find('@'), calls.size());
    const std::string kind_name = calls.substr(0, at);
    Rule parsed{std::nullopt, 0, kUnlimited, nullptr, {}, {}};
    parsed.tuned = tuned;
    if (at < calls.size()) parse_group(rule, calls.substr(at + 1), parsed);
    if (kind_name == "window") {
      if (colon < equals || parsed.ranks) refuse_rule(rule, "windows have one route for all");
      if (window_.empty()) window_ = find_window_row(rule, rule.substr(equals + 1));
      continue;
    }
    const bool all_on_gpus = kind_name == "cuda";
    for (int kind = 0; kind < kRoutedKindCount; ++kind) {
      if (kind_name == name_of(static_cast<OpKind>(kind))) parsed.kind = static_cast<OpKind>(kind);
    }
    if (!parsed.kind && !all_on_gpus) refuse_rule(rule, "'" + kind_name + "' is no operation");
    if (colon != std::string::npos && colon < equals) {
      const std::string range = rule.substr(colon + 1, equals - colon - 1);
      const auto dash = range.find('-');
      if (dash == std::string::npos) refuse_rule(rule, "'" + range + "' is no range such as 0-64k");
      parsed.from = parse_bytes(rule, range.substr(0, dash));
      parsed.below = parse_bytes(rule, range.substr(dash + 1));
    }
    if (parsed.kind && !parsed.is_for_all_sizes() && !all_know_sizes(*parsed.kind))
      refuse_rule(rule, "ranks know different sizes of a " + kind_name +
                            ", and would choose apart; leave out the range");
    const std::string choice = rule.substr(equals + 1);
    find_gpu_route(rule, choice, parsed);
    if (!all_on_gpus) find_native(rule, choice, parsed);
    if (parsed.gpu_route.empty() && parsed.native.empty()) {
      if (parsed.kind) parsed.algorithm = find_algorithm(*parsed.kind, choice);
      if (!parsed.algorithm) {
        refuse_rule(rule, "'" + choice + "' is no " +
                              (all_on_gpus ? "route of CUDA tensors (" + gpu_route_names() + ")"
                                           : "algorithm of " + kind_name));
      }
    }
    overrides_.push_back(parsed);
  }
}

void Rules::check(const std::string& text) {
  Rules none{std::vector<Rule>()};
  none.add(text, /*tuned=*/true);
}

}  // namespace altorch
