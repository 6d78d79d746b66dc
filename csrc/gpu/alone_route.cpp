// SPDX-License-Identifier: BSD-3-Clause
// A route for a group of one rank, which needs no NCCL for it: that takes seconds and memory to
// start.
#include "gpu/poison_guard.h"
#include "gpu/route_opening.h"

namespace altorch {

// [route]
namespace {

// Whatever it asks for is its own input.
class AloneRoute : public GpuRoute {
 public:
  explicit AloneRoute(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  const char* name() const override { return "alone"; }
  void enqueue(std::span<const Operation> operations, void* stream) override {
    for (const Operation& operation : operations) {
      const auto result = result_of(operation, /*rank=*/0, /*size=*/1);
      if (operation.input && operation.input != operation.output)
        device_->copy_on_device(result.data(), operation.input, result.size(), stream);
    }
  }
  // It waits for no peer.
  std::optional<Error> failure() override { return std::nullopt; }
  void abort(const std::string&) override {}
  bool marks_results() const override { return true; }
  bool outlived_by_graphs() const override { return true; }
  bool takes_gpu_memory() const override { return false; }

 private:
  const std::unique_ptr<Device> device_;
};

}  // namespace

extern const GpuRouteRow gpu_rows::alone = {
    .name = "alone",
    .opens_at_once = true,
    .forced = true,
    .in_rank_order = true,
    .unsupported_on = [](const GpuSource& gpus, int device) { return gpus.unsupported_reason(device); },
    .unsupported_among = [](const World& world) -> std::optional<std::string> {
      if (world.ranks == 1) return std::nullopt;
      return "there are " + std::to_string(world.ranks) + " ranks";
    },
    .unsupported_to = [](const Operation& operation, const World&) -> std::optional<std::string> {
      if (operation.is_message()) return "it carries no messages";
      if (operation.reduces() && operation.op == ReduceOp::kPremulSum) return "it multiplies nothing";
      return std::nullopt;
    },
    .explain = [](const Operation&, const World&,
                  std::string_view) { return ExplainedProtocol{.steps = "one copy on the device\n"}; },
    .open =
        [](RouteOpening& opening) {
          return OpenedRoute{std::make_unique<AloneRoute>(opening.options.gpus.open(opening.device, false)),
                             ""};
        },
};
// [route]

}  // namespace altorch
