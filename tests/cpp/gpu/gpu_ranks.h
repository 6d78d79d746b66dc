// SPDX-License-Identifier: BSD-3-Clause
// Ranks with GPUs that are threads: GpuRoutes on fake devices and the fake NCCL, in a world that a
// test describes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu/gpu_routes.h"
#include "gpu/host_staged/conformance.h"
#include "platform/shareable.h"
#include "support/fake_nccl.h"
#include "support/route_setting.h"
#include "support/test_watchdog.h"

namespace altorch {

// What a rank finds where it runs; reasons are empty where nothing is in the way.
struct Surroundings {
  std::string gpu, node = "node";
  std::string unsupported_reason = {}, kernel_unsupported_reason = {};  // of the GPU
  std::string cannot_pin_shared = {};               // memory that ranks share; found out when it is tried
  std::size_t pinned_limit = std::size_t{1} << 40;  // of each device
  std::string cannot_export = "its memory is not exported in this test";
  std::string cannot_map = {};  // another GPU's memory; found out when it is tried
  bool has_nccl = true;
  bool mps = false;                     // MPS
  std::vector<std::string> links = {};  // by NVLink: the GPUs
};

inline std::vector<Surroundings> own_gpus(int ranks) {
  std::vector<Surroundings> made;
  for (int rank = 0; rank < ranks; ++rank) made.push_back({.gpu = "gpu " + std::to_string(rank)});
  return made;
}
inline std::vector<Surroundings> shared_gpu(int ranks) {
  return std::vector<Surroundings>(static_cast<std::size_t>(ranks), {.gpu = "the gpu"});
}
// Ranks in turns on the nodes.
inline std::vector<Surroundings> two_nodes(int ranks) {
  auto made = own_gpus(ranks);
  for (std::size_t rank = 1; rank < made.size(); rank += 2) made[rank].node = "another node";
  return made;
}

// `nodes`: of each rank. The GPUs of a node map each other's memory.
inline std::vector<Surroundings> on_nodes(const std::vector<int>& nodes, bool has_nccl) {
  auto made = own_gpus(static_cast<int>(nodes.size()));
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    made[rank].node = "node " + std::to_string(nodes[rank]);
    made[rank].cannot_export = "";
    made[rank].has_nccl = has_nccl;
  }
  return made;
}

// What other ranks do, for up to 30 s.
inline void wait_until(const std::function<bool()>& there) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!there()) {
    if (std::chrono::steady_clock::now() > deadline)
      throw Error(ErrorKind::kTimeout, "the test waited in vain");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class FakeGpu : public FakeDevice {
 public:
  FakeGpu(FakeDeviceOptions options, std::string cannot_pin_shared, std::string cannot_map)
      : FakeDevice(options),
        cannot_pin_shared_(std::move(cannot_pin_shared)),
        cannot_map_(std::move(cannot_map)) {}
  DeviceMemory import_memory(const Descriptor& descriptor, std::size_t bytes) override {
    if (!cannot_map_.empty()) throw Error(ErrorKind::kUnsupported, cannot_map_);
    return FakeDevice::import_memory(descriptor, bytes);
  }
  using FakeDevice::pin;
  PinnedMemory pin(std::shared_ptr<std::byte> memory, std::size_t bytes) override {
    if (!cannot_pin_shared_.empty()) throw Error(ErrorKind::kUnsupported, cannot_pin_shared_);
    return FakeDevice::pin(std::move(memory), bytes);
  }

 private:
  const std::string cannot_pin_shared_, cannot_map_;
};

inline GpuSource fake_gpus(const Surroundings& here, FakeDeviceOptions options) {
  options.pinned_limit = here.pinned_limit;
  const auto reason = [](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
  };
  return {
      .open =
          [=](int, bool) {
            return std::make_unique<FakeGpu>(options, here.cannot_pin_shared, here.cannot_map);
          },
      .open_beside =
          [beside = options](int) mutable {
            beside.beside = true;
            return std::make_unique<FakeDevice>(beside);
          },
      .unsupported_reason = [=](int) { return reason(here.unsupported_reason); },
      .kernel_unsupported_reason = [=] { return reason(here.kernel_unsupported_reason); },
      .export_unsupported_reason = [=](int) { return reason(here.cannot_export); },
      .identity = [=](int) { return here.gpu; },
      .mps = [=](int) { return here.mps; },
      .links = [=](int) { return here.links; },
      .allocation = [](const std::byte* block, std::size_t bytes) -> std::optional<std::span<std::byte>> {
        const auto found = find_shareable(block, bytes);
        if (!found) return std::nullopt;
        return std::span(const_cast<std::byte*>(block) - found->offset, found->bytes);
      },
      .node = [=] { return here.node; },
  };
}

struct GpuRank {
  int rank, size;
  Communicator& group;
  GpuRoutes& routes;
  FakeDevice& device;
  Stream stream;

  // As the backend does it: the name of the route. `on`: another stream.
  std::string call(Operation operation, Stream on = nullptr) const {
    if (!operation.is_message()) operation.sequence = group.next_sequence(operation.device);
    if (!operation.is_message()) group.append_to_history(operation);
    group.started(operation);
    GpuRoute& route = routes.choose({&operation, 1}, /*capturing=*/false);
    routes.enqueue(route, {&operation, 1}, on ? on : stream);
    return route.name();
  }
  // The same up to the route, with what the backend does when there is none: the peers may already
  // wait.
  void choose_or_abort(Operation operation) const {
    operation.sequence = group.next_sequence(operation.device);
    try {
      routes.choose({&operation, 1}, /*capturing=*/false);
    } catch (const Error& error) {
      throw group.abort_call(operation, error);
    }
  }
  void finish() const { ASSERT_TRUE(device.synchronize(stream)); }
};

class GpuWorld {
 public:
  explicit GpuWorld(std::vector<Surroundings> places, int nccl_version = 22809)
      : places_(std::move(places)),
        nccl_(nccl_version),
        groups_(static_cast<int>(places_.size())),
        watchdog_(std::chrono::seconds(120), [this] { end_everything(); }) {}

  FakeNccl& nccl() { return nccl_; }
  int size() const { return groups_.size(); }

  // Runs `body` as every rank, and returns what each threw. `aborts`: streams are let go on.
  std::vector<std::string> try_to(const std::function<void(GpuRank&)>& body, bool aborts = false) {
    return groups_.run([&](int rank, Communicator& group) {
      const Surroundings& here = places_[static_cast<std::size_t>(rank)];
      const FakeDeviceOptions device_options{.seed = static_cast<unsigned>(rank + 1), .aborts = aborts};
      FakeDevice device(device_options);
      GpuRouteOptions options;
      options.gpus = fake_gpus(here, device_options);
      options.make_carrier = [&](const std::vector<int>& ranks) {
        const std::lock_guard lock(mutex_);
        auto& carrier = carriers_.try_emplace(ranks, static_cast<int>(ranks.size())).first->second;
        const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
        return carrier[static_cast<int>(place)].shared_from_this();
      };
      Operation first = staged::operation_of(OpKind::kBarrier, nullptr, nullptr, 0);
      FakeNccl::hide_from_this_thread(!here.has_nccl);
      GpuRoutes routes(group, first, std::chrono::seconds(100), std::move(options));
      const Registered registered(*this, routes);
      GpuRank me{rank, size(), group, routes, device, device.make_stream()};
      body(me);
      me.finish();
    });
  }
  // Expects that all goes well.
  void run(const std::function<void(GpuRank&)>& body) {
    EXPECT_EQ(try_to(body), all_good(size()));
    EXPECT_EQ(nccl_.misuse(), std::vector<std::string>());
    EXPECT_FALSE(watchdog_.rescued());
  }

 private:
  // What the watchdog can end.
  struct Registered {
    Registered(GpuWorld& world, GpuRoutes& routes) : world_(world), routes_(routes) {
      const std::lock_guard lock(world_.mutex_);
      world_.alive_.insert(&routes_);
    }
    ~Registered() {
      const std::lock_guard lock(world_.mutex_);
      world_.alive_.erase(&routes_);
    }
    GpuWorld& world_;
    GpuRoutes& routes_;
  };

  void end_everything() {
    nccl_.end();
    const std::lock_guard lock(mutex_);
    for (GpuRoutes* routes : alive_) routes->abort("the test hangs");
  }

  const std::vector<Surroundings> places_;
  FakeNccl nccl_;
  ThreadGroup groups_;
  std::mutex mutex_;                                  // guards what is below
  std::map<std::vector<int>, ThreadGroup> carriers_;  // by ranks
  std::set<GpuRoutes*> alive_;
  TestWatchdog watchdog_;
};

}  // namespace altorch
