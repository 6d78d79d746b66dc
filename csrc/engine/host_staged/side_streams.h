// Streams of a route besides the caller's, so that both directions of the bus are busy, and no copy waits for
// a flag that is not its own.
#pragma once

#include <array>
#include <vector>

#include "device/device.h"

namespace altorch {

// The device must outlive it. Thread rules: as the device's.
class SideStreams {
 public:
  static constexpr std::size_t kMost = 8;
  using Lanes = std::array<Stream, kMost>;

  SideStreams(Device& device, std::size_t number) : device_(device) {
    for (std::size_t i = 0; i < number; ++i) own_.push_back(device.make_stream());
  }

  // The streams for one call: the first `number` of these, which then begin after `stream`, and `stream` in
  // place of all others.
  Lanes fork(Stream stream, std::size_t number) {
    Lanes lanes;
    for (std::size_t i = 0; i < kMost; ++i) {
      lanes[i] = i < number ? own_[i] : stream;
      if (i < number) device_.wait_for_stream(own_[i], stream);
    }
    return lanes;
  }
  // `stream` goes on after what fork() gave.
  void join(Stream stream, const Lanes& lanes) {
    for (const Stream lane : lanes) {
      if (lane != stream) device_.wait_for_stream(stream, lane);
    }
  }

 private:
  Device& device_;
  std::vector<Stream> own_;
};

}  // namespace altorch
