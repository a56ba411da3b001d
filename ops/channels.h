// Where the channels of a value lie: what bias and batch normalisation share.
#pragma once

#include <cstdint>
#include <string>

#include "base/shape.h"
#include "base/status.h"

namespace monograph::ops {

// A value as [outer, channels, inner]: channels last ("NHWC") has inner 1, channels first ("NCHW")
// outer n.
struct Channels {
  int64_t outer = 1, channels = 1, inner = 1;

  int64_t elements() const { return outer * channels * inner; }
  int64_t per_channel() const { return outer * inner; }
};

inline Result<Channels> ChannelsOf(const Shape& shape, bool channels_first) {
  if (shape.rank() < 2)
    return InvalidArgument("a value of shape " + shape.ToString() +
                           " has no channels; it needs at least 2 dimensions");
  Channels layout;
  const int channel = channels_first ? 1 : shape.rank() - 1;
  for (int i = 0; i < shape.rank(); ++i)
    (i < channel ? layout.outer : i == channel ? layout.channels : layout.inner) *= shape[i];
  return layout;
}

// Of BiasAdd.
inline Status CheckBias(const Shape& bias, const Channels& l, const Shape& value) {
  if (bias.rank() == 1 && bias[0] == l.channels) return Status();
  return InvalidArgument("a bias of shape " + bias.ToString() + " does not fit the " +
                         std::to_string(l.channels) + " channels of " + value.ToString());
}

}  // namespace monograph::ops
