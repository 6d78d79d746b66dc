// docs/extending.md, "A way for CUDA tensors": one for groups of one rank, as the page has it, on the fake device.
#include <gtest/gtest.h>

#include "engine/host_staged/conformance.h"
#include "engine/poison_guard.h"
#include "engine/route/row.h"

namespace altorch {
namespace {

// [route]
// A rank alone: whatever it asks for is its own input.
class Alone : public GpuRoute {
 public:
  explicit Alone(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  const char* name() const override { return "alone"; }
  void enqueue(std::span<const Operation> operations, void* stream) override {
    for (const Operation& operation : operations) {
      const auto result = result_of(operation, /*rank=*/0, /*size=*/1);
      if (operation.input && operation.input != operation.output)
        device_->copy_on_device(result.data(), operation.input, result.size(), stream);
    }
  }
  std::optional<Error> failure() override { return std::nullopt; }
  void abort(const std::string&) override {}  // it waits for nobody

 private:
  const std::unique_ptr<Device> device_;
};

constexpr GpuRouteRow alone = {
    .name = "alone",
    .instead = "",
    .reason = "one rank: nothing has to move between GPUs",
    .opens_at_once = false,
    .guarded = false,
    .obstacle_on = [](const GpuSource&, int) -> std::optional<std::string> { return std::nullopt; },
    .obstacle_among = [](const World& world) -> std::optional<std::string> {
      if (world.ranks == 1) return std::nullopt;
      return "there are " + std::to_string(world.ranks) + " ranks";
    },
    .obstacle_to = [](const Operation& operation) -> std::optional<std::string> {
      if (!operation.is_message()) return std::nullopt;
      return "it carries no messages";
    },
    .obstacle_to_capture = [](const Operation&, const World&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .takes_small = [](const Operation&, const World&) -> const char* { return nullptr; },
    .pair_bytes = nullptr,
    .steps = [](const Operation&, const World&) { return std::string("one copy on the device\n"); },
    .open =
        [](GpuGroup&) {
          return Opened{std::make_unique<Alone>(std::make_unique<FakeDevice>()), ""};
        },
};
// [route]

TEST(Extending, AWayForCudaTensors) {
  World world;
  world.ranks = 2;
  EXPECT_EQ(alone.obstacle_among(world), std::optional<std::string>("there are 2 ranks"));
  world.ranks = 1;
  EXPECT_EQ(alone.obstacle_among(world), std::nullopt);
  ThreadGroup groups(1);
  auto device = std::make_unique<FakeDevice>();
  FakeDevice& kept = *device;
  const Stream stream = device->make_stream();
  Alone route(std::move(device));
  const auto input = staged::numbers(1000, 0);
  std::vector<float> output(1000);
  for (const OpKind kind :
       {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAll}) {
    std::fill(output.begin(), output.end(), 0.0f);
    const Operation operation = staged::operation_of(kind, input.data(), output.data(), 1000);
    EXPECT_EQ(alone.obstacle_to(operation), std::nullopt);
    route.enqueue({&operation, 1}, stream);
    ASSERT_TRUE(kept.synchronize(stream));
    EXPECT_EQ(output, input);
  }
  EXPECT_TRUE(alone.obstacle_to(staged::operation_of(OpKind::kSend, input.data(), nullptr, 1)));
}

}  // namespace
}  // namespace altorch
