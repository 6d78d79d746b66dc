// SPDX-License-Identifier: BSD-3-Clause
#include "select/costs.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <span>

#include "base/error.h"

namespace altorch {
namespace {

using Rows = std::vector<CostRow>;

const Rows& default_rows() {
  static const Rows& rows = *new Rows{
#include "select/default_costs.inc"
  };
  return rows;
}

// Never destroyed: a thread may ask while the process ends.
std::mutex& cost_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
std::shared_ptr<const Rows>& tuned_rows() {
  static auto& rows = *new std::shared_ptr<const Rows>(std::make_shared<Rows>());
  return rows;
}

// What was measured in place of a kind that was not: as many bytes move, or more.
OpKind measured_kind(OpKind kind) {
  if (kind == OpKind::kGather || kind == OpKind::kScatter) return OpKind::kAllGather;
  return kind == OpKind::kReduce || is_scan(kind) ? OpKind::kAllReduce : kind;
}

// On the straight line through two points, in logarithms.
double between(double x, double x0, double y0, double x1, double y1) {
  return y0 * std::pow(y1 / y0, std::log(x / x0) / std::log(x1 / x0));
}

double us_of(const CostRow& row, std::int64_t bytes) {
  const auto& points = row.points;
  const auto next = std::ranges::upper_bound(points, bytes, {}, &CostPoint::bytes);
  if (next == points.begin()) return next->us;
  const CostPoint& before = *std::prev(next);
  const auto size = static_cast<double>(bytes), known = static_cast<double>(before.bytes);
  if (next == points.end()) return bytes > 0 && known > 0 ? before.us * size / known : before.us;
  if (before.bytes == 0) return before.us;
  return between(size, known, before.us, static_cast<double>(next->bytes), next->us);
}

// The rows of a kind, fewest ranks first.
std::vector<const CostRow*> rows_of(const Rows& rows, On on, OpKind kind) {
  std::vector<const CostRow*> found;
  for (const CostRow& row : rows)
    if (row.on == on && row.operation == name_of(kind)) found.push_back(&row);
  std::ranges::sort(found, {}, &CostRow::ranks);
  return found;
}

// `rows`: at least one.
double us_among(std::span<const CostRow* const> rows, std::int64_t bytes, int ranks) {
  const auto upper = std::ranges::lower_bound(rows, ranks, {}, &CostRow::ranks);
  if (upper != rows.end() && ((*upper)->ranks == ranks || upper == rows.begin()))
    return us_of(**upper, bytes);
  const CostRow& low = **std::prev(upper);
  if (upper == rows.end()) return us_of(low, bytes) * std::log2(ranks) / std::log2(low.ranks);
  return between(ranks, low.ranks, us_of(low, bytes), (*upper)->ranks, us_of(**upper, bytes));
}

}  // namespace

double measured_seconds(On on, const Operation& operation, int ranks) {
  if (ranks < 2) return 0;
  const OpKind kind = measured_kind(operation.kind);
  const std::int64_t bytes = payload_bytes(operation, ranks);
  const auto usual = rows_of(default_rows(), on, kind);
  std::shared_ptr<const Rows> rows;
  {
    const std::lock_guard lock(cost_mutex());
    rows = tuned_rows();
  }
  const auto tuned = rows_of(*rows, on, kind);
  if (usual.empty()) return tuned.empty() ? 0 : us_among(tuned, bytes, ranks) * 1e-6;
  const double us = us_among(usual, bytes, ranks);
  if (tuned.empty()) return us * 1e-6;
  const CostRow& nearest = **std::ranges::min_element(
      tuned, {}, [&](const CostRow* row) { return std::abs(std::log(double(row->ranks) / ranks)); });
  const double scale = us_of(nearest, bytes) / us_among(usual, bytes, nearest.ranks);
  return us * scale * 1e-6;
}

void set_tuned_costs(std::vector<CostRow> rows) {
  for (const CostRow& row : rows) {
    const auto rises = [](const CostPoint& one, const CostPoint& next) { return one.bytes < next.bytes; };
    const bool holds = row.ranks > 1 && !row.points.empty() && row.points[0].bytes >= 0 &&
                       std::ranges::all_of(row.points,
                                           [](const CostPoint& each) {
                                             return std::isfinite(each.us) && each.us > 0 && each.us < 1e12;
                                           }) &&
                       std::ranges::adjacent_find(row.points, std::not_fn(rises)) == row.points.end();
    if (!holds) {
      throw Error(ErrorKind::kInvalidArgument,
                  "the times of " + row.operation + " among " + std::to_string(row.ranks) +
                      " ranks: there must be at least 2 ranks and one time, sizes rise from 0, and times lie "
                      "between 0 and 1e12 us");
    }
  }
  auto made = std::make_shared<const Rows>(std::move(rows));
  const std::lock_guard lock(cost_mutex());
  tuned_rows() = std::move(made);
}

}  // namespace altorch
