#include "engine/route.h"

#include <algorithm>
#include <limits>

#include "common/env.h"
#include "common/error.h"

namespace altorch {
namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

// Up to so many ranks everyone talks to everyone at once: a message costs less than another wait for the
// peers, which among ranks that share cores is a turn of the scheduler. Beyond, the number of messages
// counts. Set, as all below, by benchmarks/cpu_collectives.py.
constexpr int kFewRanks = 8;
// Up to so many bytes into a rank, sending everything to everyone beats two waits with less; up to so many
// bytes out of the root of a broadcast.
constexpr std::int64_t kOneShot = 128 * kKiB, kOneShotBroadcast = kMiB;

// Below these payloads the number of rounds decides, above them the bytes sent.
constexpr std::int64_t kAllReduceLatency = 64 * kKiB;
constexpr std::int64_t kAllReduceMiddle = 4 * kMiB;
constexpr std::int64_t kBroadcastLatency = 64 * kKiB;
constexpr std::int64_t kAllGatherLatency = 8 * kKiB;
constexpr std::int64_t kAllToAllLatency = 2 * kKiB;

[[noreturn]] void refuse_rule(const std::string& rule, const std::string& why) {
  throw Error(ErrorKind::kInvalidArgument,
              "ALTORCH_ROUTE: in '" + rule + "', " + why + "; `altorch algorithms` lists what there is");
}

std::int64_t parse_bytes(const std::string& rule, const std::string& text) {
  if (text == "inf") return kEndless;
  std::size_t used = 0;
  std::int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
    refuse_rule(rule, "'" + text + "' is not a size");
  }
  const std::string unit = text.substr(used);
  if (unit == "k" || unit == "K") return value * kKiB;
  if (unit == "m" || unit == "M") return value * kMiB;
  if (unit == "g" || unit == "G") return value * kMiB * kKiB;
  if (!unit.empty()) refuse_rule(rule, "'" + text + "' is not a size (use 64, 4k, 2m, 1g or inf)");
  return value;
}

Route own(OpKind kind, std::string_view name, const char* reason) {
  return {find_algorithm(kind, name), reason};
}

Route default_route(const Operation& operation, int size) {
  const std::int64_t bytes = payload_bytes(operation, size);
  const bool power_of_two = (size & (size - 1)) == 0, few = size <= kFewRanks;
  const bool one_shot = few && (size - 1) * bytes <= kOneShot;
  switch (operation.kind) {
    case OpKind::kAllReduce:
      if (one_shot) return own(operation.kind, "one_shot", "small, few ranks: one wait for the peers");
      if (few)
        return own(operation.kind, "pairwise", "few ranks: two waits for the peers, each byte reduced once");
      if (bytes <= kAllReduceLatency) {
        return own(operation.kind, "recursive_doubling", "small: fewest rounds");
      }
      // Other algorithms would carry them as float32.
      if (is_half(operation.dtype))
        return own(operation.kind, "pairwise", "half types: half the bytes on the wire");
      if (bytes <= kAllReduceMiddle && power_of_two) {
        return own(operation.kind, "rabenseifner", "medium: few rounds, each byte reduced once");
      }
      return own(operation.kind, "ring", "large: every link busy, reduction overlaps transfer");
    case OpKind::kReduce:
      if (one_shot) return own(operation.kind, "linear", "small, few ranks: one wait for the peers");
      if (bytes <= kAllReduceLatency) return own(operation.kind, "binomial", "small: fewest rounds");
      return own(operation.kind, "pairwise", "large: each byte reduced once");
    case OpKind::kBroadcast:
      if (size <= 2 || (few && (size - 1) * bytes <= kOneShotBroadcast))
        return own(operation.kind, "linear", "small, few ranks: one wait for the root");
      if (few)
        return own(operation.kind, "pairwise", "large, few ranks: the root sends each byte once, two waits");
      if (bytes <= kBroadcastLatency) return own(operation.kind, "binomial", "small: fewest rounds");
      return own(operation.kind, "scatter_all_gather", "large: the root sends each byte once");
    case OpKind::kAllGather:
      if (few) return own(operation.kind, "linear", "few ranks: one wait for the peers, no copies");
      if (operation.uneven()) return own(operation.kind, "ring", "uneven blocks");
      if (bytes <= kAllGatherLatency) return own(operation.kind, "bruck", "small: fewest rounds");
      return own(operation.kind, "ring", "large: neighbours only, no copies");
    case OpKind::kReduceScatter:
      return own(operation.kind, "pairwise", "each byte crosses once");
    case OpKind::kAllToAll:
      if (few) return own(operation.kind, "linear", "few ranks: one wait for the peers");
      if (!operation.uneven() && bytes <= kAllToAllLatency) {
        return own(operation.kind, "bruck", "small blocks: fewest rounds");
      }
      return own(operation.kind, "pairwise", "each byte crosses once");
    case OpKind::kGather:
    case OpKind::kScatter:
      return own(operation.kind, "linear", "only the root knows the blocks");
    case OpKind::kBarrier:
      if (few) return own(operation.kind, "linear", "few ranks: one wait for the peers");
      return own(operation.kind, "dissemination", "fewest rounds");
    case OpKind::kSend:
    case OpKind::kReceive:
      break;
  }
  return {nullptr, "a message"};
}

}  // namespace

RouteTable::RouteTable() {
  const std::string text = setting("ALTORCH_ROUTE");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(",;", begin), text.size());
    const std::string rule = text.substr(begin, end - begin);
    begin = end + 1;
    if (rule.empty()) continue;
    const auto equals = rule.find('=');
    if (equals == std::string::npos) refuse_rule(rule, "there is no '='");
    const auto colon = rule.find(':');
    const std::string kind_name = rule.substr(0, std::min(colon, equals));
    Rule parsed{std::nullopt, 0, kEndless, nullptr, {}};
    const bool all_on_gpus = kind_name == "cuda";
    for (int kind = 0; kind < kOpKindCount; ++kind) {
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
    const std::string choice = rule.substr(equals + 1);
    for (const std::string_view route : kGpuRouteNames) {
      if (choice == route) parsed.gpu_route = route;
    }
    if (parsed.gpu_route.empty() && (choice != "native" || all_on_gpus)) {
      if (parsed.kind) parsed.algorithm = find_algorithm(*parsed.kind, choice);
      if (!parsed.algorithm) {
        refuse_rule(rule, "'" + choice + "' is no " +
                              (all_on_gpus ? "route of CUDA tensors (nccl, host_staged, host_relay)"
                                           : "algorithm of " + kind_name));
      }
    }
    overrides_.push_back(parsed);
  }
}

Route RouteTable::choose(const Operation& operation, int size, bool native_offered) const {
  if (!overrides_.empty()) {
    const std::int64_t bytes = payload_bytes(operation, size);
    for (const Rule& rule : overrides_) {
      if (!rule.gpu_route.empty() || !rule.applies(operation.kind, bytes)) continue;
      if (rule.algorithm ? rule.algorithm->even_only && operation.uneven() : !native_offered) continue;
      return {rule.algorithm, "ALTORCH_ROUTE"};
    }
  }
  return default_route(operation, size);
}

std::string_view RouteTable::gpu_route(const Operation& operation, int size) const {
  if (overrides_.empty()) return {};
  const std::int64_t bytes = payload_bytes(operation, size);
  for (const Rule& rule : overrides_) {
    if (!rule.gpu_route.empty() && rule.applies(operation.kind, bytes)) return rule.gpu_route;
  }
  return {};
}

std::int64_t segment_elements(DType dtype) {
  static const auto bytes = static_cast<std::int64_t>(numeric_setting("ALTORCH_SEGMENT_BYTES"));
  return std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(size_of(dtype)));
}

}  // namespace altorch
