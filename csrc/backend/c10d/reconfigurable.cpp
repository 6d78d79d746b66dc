// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/reconfigurable.h"

#ifdef ALTORCH_HAS_RECONFIGURE

#include <algorithm>
#include <charconv>
#include <set>

#include "backend/c10d/errors.h"
#include "base/number.h"

namespace altorch::backend {
namespace {

// What a handle says: al:<rank as it was started>:<attempts>:<name of the object>:<process id>:<its
// node>
struct Handle {
  int first_rank = -1;
  ProcessId process;

  static Handle of(const std::string& text) {
    Handle handle;
    std::string parts[5];
    std::size_t begin = 0;
    for (std::string& part : parts) {
      const std::size_t end = std::min(text.find(':', begin), text.size());
      part = text.substr(begin, end - begin);
      begin = std::min(end + 1, text.size());
    }
    handle.process.node = text.substr(begin);
    if (parts[0] != "al" || !read(parts[1], handle.first_rank) || !read(parts[4], handle.process.pid) ||
        handle.first_rank < 0 || handle.process.pid <= 0 || handle.process.node.empty()) {
      throw Error(ErrorKind::kInvalidArgument,
                  excerpt(text) + " is no handle; pass what get_reconfigure_handle() gave on every rank");
    }
    return handle;
  }

 private:
  template <typename Number>
  static bool read(const std::string& text, Number& number) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
    return result.ec == std::errc() && result.ptr == text.data() + text.size();
  }
};

// The same on every rank.
std::vector<std::string> in_order(const c10d::ReconfigureOptions& options) {
  if (const auto* listed = std::get_if<std::vector<c10d::ReconfigureHandle>>(&options.handles))
    return *listed;
  const auto& set = std::get<std::unordered_set<c10d::ReconfigureHandle>>(options.handles);
  std::vector<std::string> handles(set.begin(), set.end());
  std::sort(handles.begin(), handles.end(), [](const std::string& one, const std::string& other) {
    return std::pair(Handle::of(one).first_rank, one) < std::pair(Handle::of(other).first_rank, other);
  });
  return handles;
}

}  // namespace

ReconfigurableBackend::ReconfigurableBackend(int rank, int size, std::string name,
                                             c10::intrusive_ptr<AlOptions> options, Make make)
    : Backend(rank, size),
      name_(std::move(name)),
      first_rank_(rank),
      options_(std::move(options)),
      make_(std::make_shared<const Make>(std::move(make))) {}

c10::intrusive_ptr<AlBackend> ReconfigurableBackend::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

c10::intrusive_ptr<AlBackend> ReconfigurableBackend::use() const {
  if (auto backend = now()) return backend;
  const std::lock_guard lock(mutex_);
  throw_as_torch(
      Error(ErrorKind::kClosed, "altorch: group '" + name_ + "' " +
                                    (is_closed_ ? "was destroyed; make another one"
                                                : "has no ranks yet; all of them call reconfigure() first")));
}

// The handle changes with each attempt, so no rank reads the keys that an earlier attempt left in
// the store.
c10d::ReconfigureHandle ReconfigurableBackend::get_reconfigure_handle() const {
  const std::lock_guard lock(mutex_);
  const ProcessId own = ProcessId::own();
  return "al:" + std::to_string(first_rank_) + ":" + std::to_string(attempts_) + ":" + own_name_ + ":" +
         std::to_string(own.pid) + ":" + own.node;
}

ReconfigurableBackend::Asked ReconfigurableBackend::check(const c10d::ReconfigureOptions& options) const {
  const auto invalid = [](const std::string& what) { return Error(ErrorKind::kInvalidArgument, what); };
  Asked asked;
  asked.uuid = options.uuid;
  asked.timeout = clamp_timeout(options.timeout.value_or(options_->timeout));
  asked.handles = in_order(options);
  for (const std::string& handle : asked.handles) asked.processes.push_back(Handle::of(handle).process);
  if (std::set<std::string>(asked.handles.begin(), asked.handles.end()).size() < asked.handles.size())
    throw invalid("a handle is there twice; pass one for each rank");
  const std::string own = get_reconfigure_handle();
  const auto mine = std::find(asked.handles.begin(), asked.handles.end(), own);
  if (mine == asked.handles.end()) {
    throw invalid(
        "this process's handle ('" + own + "') is not among the " + std::to_string(asked.handles.size()) +
        "; handles change with every reconfigure(), so exchange those of now, and do not call it on a "
        "rank that is left out");
  }
  asked.rank = static_cast<int>(mine - asked.handles.begin());
  return asked;
}

ReconfigurableBackend::WorkPtr ReconfigurableBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  return guarded([&]() -> WorkPtr {
    try {
      const Asked asked = check(options);
      {
        const std::lock_guard lock(mutex_);
        if (is_closed_) throw Error(ErrorKind::kClosed, "the group was destroyed; make another one");
        if (under_way_) throw Error(ErrorKind::kInvalidArgument, "another thread is in it already");
        under_way_ = std::make_shared<Interrupt>();
        ++attempts_;
      }
      struct Ended {
        ReconfigurableBackend& backend;
        ~Ended() {
          const std::lock_guard lock(backend.mutex_);
          backend.under_way_ = nullptr;
        }
      } ended{*this};
      const Interruptible interruptible(under_way_);
      replace(asked);
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with("altorch: ")) throw;  // of the group that was to be
      throw error.with_prefix("altorch: group '" + name_ + "': reconfigure: ");
    }
    return c10::make_intrusive<AlWork>(getRank(), c10d::OpType::UNKNOWN, 0, Tensors());
  });
}

void ReconfigurableBackend::replace(const Asked& asked) {
  auto before = now();
  if (before && !before->is_whole()) before->close_for_reconfigure();
  std::shared_ptr<const Make> make;
  {
    const std::lock_guard lock(mutex_);
    make = make_;
  }
  if (!make) throw Error(ErrorKind::kClosed, "the group was destroyed; make another one");
  const auto [made, unsupported_reason] = (*make)(asked);
  if (!made) throw Error(ErrorKind::kTransport, unsupported_reason);
  made->setTimeout(options_->timeout);
  made->share(completion_hooks_);
  made->setGroupUid(getGroupUid());
  made->setGroupDesc(getGroupDesc());
  made->setBoundDeviceId(getBoundDeviceId());
  bool is_late = false;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, hook] : hooks_) made->registerAbortHook(id, hook);
    if (completion_hook_) made->registerOnCompletionHook(std::function(completion_hook_));
    is_late = is_closed_;
    if (!is_late) {
      now_ = made;
      rank_ = asked.rank;
      size_ = static_cast<int>(asked.handles.size());
    }
  }
  if (before) before->close_for_reconfigure();
  if (!is_late) return;
  made->abort();
  throw Error(ErrorKind::kClosed, "another thread destroyed the group meanwhile");
}

void ReconfigurableBackend::registerAbortHook(std::int64_t id, c10d::AbortHook hook) {
  const auto kept = std::make_shared<c10d::AbortHook>(std::move(hook));
  c10d::AbortHook shared = [kept] { (*kept)(); }, last = shared;  // which outlive the lock
  c10::intrusive_ptr<AlBackend> backend;
  {
    const std::lock_guard lock(mutex_);
    hooks_[id].swap(last);
    backend = now_;
  }
  if (backend) backend->registerAbortHook(id, std::move(shared));
}

void ReconfigurableBackend::unregisterAbortHook(std::int64_t id) {
  c10d::AbortHook last;  // outlives the lock
  c10::intrusive_ptr<AlBackend> backend;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = hooks_.find(id); found != hooks_.end()) {
      last.swap(found->second);
      hooks_.erase(found);
    }
    backend = now_;
  }
  if (backend) backend->unregisterAbortHook(id);
}

void ReconfigurableBackend::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;
  const auto kept = std::make_shared<Hook>(std::move(hook));
  Hook shared, last;  // which outlive the lock
  if (*kept) shared = last = [kept](std::shared_ptr<c10d::WorkInfo> done) { (*kept)(std::move(done)); };
  onCompletionHook_ = [](std::shared_ptr<c10d::WorkInfo>) {};  // torch looks whether there is one
  c10::intrusive_ptr<AlBackend> backend;
  {
    const std::lock_guard lock(mutex_);
    completion_hook_.swap(last);
    backend = now_;
  }
  if (backend) backend->registerOnCompletionHook(std::move(shared));
}

void ReconfigurableBackend::waitForPendingWorks() {
  if (const auto backend = now()) backend->waitForPendingWorks();
}

void ReconfigurableBackend::addEphemeralTimeout(const std::chrono::milliseconds& timeout) {
  use()->addEphemeralTimeout(timeout);
}

void ReconfigurableBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = clamp_timeout(timeout);
  if (const auto backend = now()) backend->setTimeout(timeout);
}

void ReconfigurableBackend::setGroupUid(const std::string& uid) {
  Backend::setGroupUid(uid);
  if (const auto backend = now()) backend->setGroupUid(uid);
}

void ReconfigurableBackend::setBoundDeviceId(std::optional<at::Device> device) {
  Backend::setBoundDeviceId(device);
  if (const auto backend = now()) backend->setBoundDeviceId(device);
}

c10d::ErrorType ReconfigurableBackend::getError() {
  const auto backend = now();
  return backend ? backend->getError() : c10d::ErrorType::SUCCESS;
}

void ReconfigurableBackend::abort() {
  interrupt("another thread aborted the group");
  if (const auto backend = now()) backend->abort();
}

void ReconfigurableBackend::interrupt(const char* why) {
  const std::lock_guard lock(mutex_);
  if (under_way_) under_way_->raise(why);
}

c10::intrusive_ptr<AlBackend> ReconfigurableBackend::close() {
  interrupt("another thread destroyed the group");
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  return now_;
}

void ReconfigurableBackend::shutdown() {
  if (const auto last = close()) last->shutdown();
}

void ReconfigurableBackend::release_resources() {
  if (const auto last = close()) last->end();
  // All of it outlives the lock: ends of groups wait, and what belongs to Python takes its lock.
  std::shared_ptr<const Make> make;
  std::map<std::int64_t, c10d::AbortHook> hooks;
  std::function<void(std::shared_ptr<c10d::WorkInfo>)> completion_hook;
  c10::intrusive_ptr<AlBackend> last;
  const auto completion_hooks = completion_hooks_->take_all();
  const std::lock_guard lock(mutex_);
  last = std::move(now_);
  make_.swap(make);
  hooks_.swap(hooks);
  completion_hook_.swap(completion_hook);
}

// torch calls it while it makes the group, before the first generation. There are no peers to
// connect to then.
void ReconfigurableBackend::eagerConnectSingleDevice(at::Device device) {
  if (const auto backend = now()) backend->eagerConnectSingleDevice(device);
}

}  // namespace altorch::backend

#endif
