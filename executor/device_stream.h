// DeviceStream: what a kernel on a device with its own queue of work gets from its context. A GPU's
// is cuda::Stream (executor/gpu/cuda/stream.h).
#pragma once

namespace monograph {

class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
};

}  // namespace monograph
