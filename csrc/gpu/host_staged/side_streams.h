// SPDX-License-Identifier: BSD-3-Clause
// Streams of a route besides the caller's, so that both directions of the bus are busy, and no copy
// waits for a flag that is not its own.
#pragma once

#include <array>
#include <exception>
#include <utility>
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

  // The streams for one call: the first `number` of these, which then begin after `stream`, and
  // `stream` in place of all others.
  Lanes fork(Stream stream, std::size_t number) {
    Lanes lanes;
    for (std::size_t i = 0; i < kMost; ++i) {
      lanes[i] = i < number ? own_[i] : stream;
      if (i < number) device_.wait_for_stream(own_[i], stream);
    }
    return lanes;
  }

  // Right behind fork(): `stream` goes on after the lanes, at the latest when this ends. An
  // exception may end the call while copies into the caller's memory stand on the lanes; memory
  // that the caller then frees is used again behind `stream`.
  class Join {
   public:
    Join(SideStreams& sides, Stream stream, const Lanes& lanes)
        : sides_(sides), stream_(stream), lanes_(lanes) {}
    Join(const Join&) = delete;
    void now() {
      if (std::exchange(joined_, true)) return;
      for (const Stream lane : lanes_) {
        if (lane != stream_) sides_.device_.wait_for_stream(stream_, lane);
      }
    }
    ~Join() {
      try {
        now();
      } catch (const std::exception&) {  // the device is lost, and every later call says so
      }
    }

   private:
    SideStreams& sides_;
    const Stream stream_;
    const Lanes lanes_;
    bool joined_ = false;
  };

 private:
  Device& device_;
  std::vector<Stream> own_;
};

}  // namespace altorch
