#include "transports/nccl/communicator.h"

#include <future>
#include <thread>

#include "common/meeting.h"

namespace altorch::nccl {
namespace {

// Keys are text in some stores.
std::string to_hex(const UniqueId& id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : id.internal) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

UniqueId from_hex(const std::string& text) {
  UniqueId id{};
  for (std::size_t i = 0; i < sizeof(id.internal) && 2 * i + 1 < text.size(); ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

}  // namespace

Communicator::Communicator(KeyValueStore& store, const std::string& key, int device, int rank, int size,
                           std::chrono::milliseconds timeout)
    : table_(library().table), rank_(rank), size_(size) {
  UniqueId id{};
  if (rank == 0) {
    check("ncclGetUniqueId", table_.get_unique_id(&id));
    store.set(key + "/id", to_hex(id));
  }
  // NCCL waits for the others without end, so nobody begins before everybody is there.
  meet(store, key + "/here", rank, size, timeout, "with a CUDA tensor");
  if (rank != 0) id = from_hex(store.get(key + "/id", timeout));
  start(id, device, timeout);
}

// A communicator that does not block from its start on would hand every later call to a thread, at 100 us a
// call. So the start alone is given to one, which is left behind should it never end.
void Communicator::start(const UniqueId& id, int device, std::chrono::milliseconds timeout) {
  struct Start {
    Comm comm = nullptr;
    std::promise<Result> result;
  };
  auto start = std::make_shared<Start>();
  auto result = start->result.get_future();
  std::thread([start, id, device, size = size_, rank = rank_, &table = table_] {
    table.set_device(device);
    Config config;
    config.blocking = 1;
    start->result.set_value(table.init_rank(&start->comm, size, id, rank, &config));
  }).detach();
  if (result.wait_for(timeout) != std::future_status::ready) {
    throw Error(ErrorKind::kTimeout,
                "NCCL was not ready after " + std::to_string(timeout.count()) +
                    " ms: some rank of the group cannot be reached; NCCL_DEBUG=INFO shows more");
  }
  check("ncclCommInitRankConfig", result.get());
  comm_ = start->comm;
}

Communicator::~Communicator() { abort(); }

void Communicator::check(const char* what, Result result) {
  if (result == kSuccess) return;
  std::string text = std::string(what) + " failed: " + table_.error_string(result);
  const char* more = comm_ ? table_.last_error(comm_) : nullptr;
  if (more && *more) text += std::string(" (") + more + ")";
  throw Error(ErrorKind::kTransport, text + "; NCCL_DEBUG=INFO shows more");
}

void Communicator::enqueue(std::span<const CollectiveCall> operations, void* stream) {
  const std::lock_guard lock(mutex_);
  if (!comm_) throw Error(ErrorKind::kClosed, aborted_);
  if (operations.size() == 1 && is_one_call(operations.front())) return call(operations.front(), stream);
  table_.group_start();
  try {
    for (const CollectiveCall& operation : operations) call(operation, stream);
  } catch (...) {
    table_.group_end();
    throw;
  }
  check("ncclGroupEnd", table_.group_end());
}

std::optional<std::string> Communicator::async_error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !comm_) return std::nullopt;
  Result state = kSuccess;
  if (table_.async_error(comm_, &state) != kSuccess || state == kSuccess || state == kInProgress)
    return std::nullopt;
  const char* more = table_.last_error(comm_);
  return std::string("NCCL: ") + table_.error_string(state) +
         (more && *more ? std::string(" (") + more + ")" : "");
}

void Communicator::abort() {
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  table_.abort(comm_);
  comm_ = nullptr;
  aborted_ = "its NCCL communicator was aborted; destroy the group and make a new one";
}

}  // namespace altorch::nccl
