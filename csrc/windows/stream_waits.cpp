// SPDX-License-Identifier: BSD-3-Clause
#include "windows/stream_waits.h"

#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "runtime/callback_thread.h"

namespace altorch {
namespace {

constexpr std::size_t kManyEntries = 1024;

bool reached(std::uint32_t number, std::uint32_t least) {
  return static_cast<std::int32_t>(number - least) >= 0;
}

}  // namespace

// Looked after from before it is enqueued on, for that may hold the host up.
void StreamWaits::add(const Operation& operation, const WindowCall& call,
                      const std::function<void()>& entered) {
  const std::lock_guard one_by_one(adding_);
  const Place place(call.peer, call.slot);
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (call.captured) {
      in_graphs_[place].operation = operation;
    } else {
      number = ++numbers_[place];
      enter(operation, place, number);
    }
  }
  if (entered) entered();
  try {
    streams_.wait(call);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!call.captured) --numbers_[place];
    std::erase_if(entries_,
                  [&](const Entry& entry) { return entry.place == place && entry.number == number; });
    throw;
  }
}

void StreamWaits::watch(const Operation& operation, const WindowCall& call) {
  const std::lock_guard lock(mutex_);
  enter(operation, {call.peer, kSignalSlots + call.held_at}, call.held_until);
}

// Between two looks thousands may come, almost all of which are over; those that are not are no
// more than streams take.
void StreamWaits::enter(const Operation& operation, const Place& place, std::uint32_t number) {
  if (entries_.size() >= many_) {
    forget_what_is_over();
    many_ = std::max(kManyEntries, 2 * entries_.size());
  }
  entries_.push_back({operation, place, number, group_.watchdog().begin_wait(operation)});
}

void StreamWaits::forget_what_is_over() {
  std::erase_if(entries_, [&](const Entry& entry) {
    return reached(streams_.over(entry.place.first, entry.place.second), entry.number);
  });
}

std::optional<StreamWaits::Trouble> StreamWaits::trouble() {
  const auto now = Watchdog::Clock::now();
  forget_what_is_over();
  for (Entry& entry : entries_) {
    // The time of an access begins when its stream, which may have other work before it, has come
    // to it.
    const auto [peer, slot] = entry.place;
    if (slot >= kSignalSlots && !reached(streams_.begun(peer, slot), entry.number)) {
      entry.wait = group_.watchdog().begin_wait(entry.operation);
      continue;
    }
    if (const auto cause = group_.watchdog().look_after(entry.operation, entry.wait, now))
      return Trouble{entry.operation, *cause, entry.wait};
  }
  for (auto& [place, replayed] : in_graphs_) {
    const auto counts = streams_.replayed(place.first, place.second);
    if (counts.begun == counts.over || counts.over != replayed.over) replayed.wait.reset();
    replayed.over = counts.over;
    if (counts.begun == counts.over) continue;
    if (!replayed.wait) replayed.wait = group_.watchdog().begin_wait(replayed.operation);
    if (const auto cause = group_.watchdog().look_after(replayed.operation, *replayed.wait, now))
      return Trouble{replayed.operation, *cause, *replayed.wait};
  }
  return std::nullopt;
}

// A signal that comes late may take back what end() has raised, so that it is raised until nothing
// waits.
bool StreamWaits::look() {
  auto group = alive_.lock();
  if (!group) return false;
  std::optional<Trouble> found;
  bool waits = false, ended = false;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return true;
    if (!over_) found = trouble();
    if (over_) forget_what_is_over();
    ended = over_;
    over_ |= found.has_value();
    waits = !entries_.empty() || (!over_ && !in_graphs_.empty());
  }
  if (found) {
    end(*found);
  } else if (ended && waits) {
    streams_.end();
  }
  // The destructor may take long, and other windows need this thread meanwhile.
  if (group.use_count() == 1) CallbackThread::instance().push([last = std::move(group)] {});
  return waits;
}

void StreamWaits::end(const Trouble& found) {
  const Error told = group_.watchdog().fail(found.operation, found.cause, found.wait);
  log(LogLevel::kError, told.what());
  if (on_error_ == OnError::kTeardown) {
    log(LogLevel::kError,
        "the process ends, so that what the window holds is not taken for what was waited for "
        "(ALTORCH_ON_ERROR=teardown)");
    _exit(1);  // nothing that waits for the device could come to its end
  }
  {
    const std::lock_guard lock(mutex_);
    failure_ = told;
  }
  streams_.end();
}

std::optional<Error> StreamWaits::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void StreamWaits::stop() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  entries_.clear();
}

}  // namespace altorch
