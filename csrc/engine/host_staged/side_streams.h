// Two streams of a route besides the caller's, so that both directions of the bus are busy.
#pragma once

#include "device/device.h"

namespace altorch {

// The device must outlive it. Thread rules: as the device's.
class SideStreams {
 public:
  explicit SideStreams(Device& device)
      : device_(device), down_(device.make_stream()), up_(device.make_stream()) {}

  struct Pair {
    Stream down, up;  // from the device to the host, and back
  };
  // The streams for one call: these two, which then begin after `stream`, or `stream` for both.
  Pair fork(Stream stream, bool overlaps) {
    if (!overlaps) return {stream, stream};
    device_.wait_for_stream(down_, stream);
    device_.wait_for_stream(up_, stream);
    return {down_, up_};
  }
  // `stream` goes on after what fork() gave.
  void join(Stream stream, const Pair& streams) {
    for (const Stream side : {streams.down, streams.up}) {
      if (side != stream) device_.wait_for_stream(stream, side);
    }
  }

 private:
  Device& device_;
  const Stream down_, up_;
};

}  // namespace altorch
