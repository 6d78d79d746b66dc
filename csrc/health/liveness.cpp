// SPDX-License-Identifier: BSD-3-Clause
#include "health/liveness.h"

#include <unistd.h>

#include "health/liveness_monitor.h"
#include "platform/native_thread.h"

namespace altorch {
namespace {

constexpr std::chrono::seconds kToReport{1};  // the store may be slow, or its host stopped

}  // namespace

Liveness::Liveness(LivenessSettings settings)
    : monitor_(std::make_shared<LivenessMonitor>(std::move(settings))), process_(getpid()) {
  if (monitor_->has_peers()) start_native_thread("al-liveness", [monitor = monitor_] { monitor->run(); });
}

Liveness::~Liveness() {
  wait_until_reported();
  if (getpid() == process_) monitor_->stop();
}

void Liveness::wait_until_reported() const {
  if (getpid() == process_) monitor_->wait_until_reported(kToReport);
}

std::shared_ptr<const KnownDeaths> Liveness::known_deaths() const { return monitor_; }

bool Liveness::has_far_members() const { return monitor_->has_far_members(); }

std::optional<Liveness::Death> Liveness::check(std::span<const int> ranks, bool ask_store) {
  if (getpid() != process_) return std::nullopt;
  return monitor_->check(ranks, ask_store);
}

void Liveness::ask(const LateQuestion& question) const {
  if (getpid() == process_) monitor_->ask(question);
}

const LivenessSettings& Liveness::settings() const { return monitor_->settings(); }

std::map<int, std::string> Liveness::deaths() const {
  if (getpid() != process_) return {};
  return monitor_->deaths();
}

}  // namespace altorch
