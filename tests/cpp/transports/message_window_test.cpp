// SPDX-License-Identifier: BSD-3-Clause
// What all windows have in common: tests/cpp/windows/window_test.cpp.
#include "transports/message_window.h"

#include <gtest/gtest.h>

#include "transports/loopback/channel.h"
#include "transports/window_request.h"

namespace altorch {
namespace {

// A request fails when its data are lost. The one before it must not be carried out once more.
TEST(MessageWindow, CarriesOutNothingOfARequestWhoseDataFail) {
  const auto channels = make_loopback_channels(2);
  std::vector<std::int32_t> values(2);
  MessageWindow window(*channels[0], /*tags=*/0, reinterpret_cast<std::byte*>(values.data()),
                       values.size() * sizeof(std::int32_t));
  WindowCall add;
  add.access = Access::kAccumulate;
  add.dtype = DType::kInt32;
  add.row_bytes = add.stride = sizeof(std::int32_t);
  const WindowRequest request = WindowRequest::of(add);
  const std::int32_t one[] = {1, 1};
  std::vector<Request> requests(4);
  channels[1]->send(&request, sizeof request, 0, 0, requests[0]);
  channels[1]->send(one, sizeof one[0], 0, 1, requests[1]);
  channels[1]->send(&request, sizeof request, 0, 0, requests[2]);
  channels[1]->send(one, sizeof one, 0, 1, requests[3]);  // of another size
  for (int turn = 0; turn < 10; ++turn) window.serve();
  EXPECT_EQ(values[0], 1);
}

}  // namespace
}  // namespace altorch
