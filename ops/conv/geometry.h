// The geometry of a convolution: what the kernels for every device check before they compute.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "ops/fused_ops.h"
#include "ops/window.h"

namespace monograph::ops::conv {

enum class Mode { kForward, kBackpropInput, kBackpropFilter };

struct Geometry {
  int64_t n = 0, ic = 0, oc = 0;
  // Channels in so many groups: the output channels of a group see the input channels of that
  // group.
  int64_t groups = 1;
  Window rows, columns;
  bool nchw = false;
  // Of Conv3D: windows move along a third dimension, too, the outermost one.
  bool volume = false;
  Window depth{.in = 1, .out = 1};

  using Key = std::array<int64_t, 27>;
  Key key() const {
    const Window &r = rows, &c = columns, &d = depth;
    return {n,      ic,       oc,         nchw,  volume,       groups,      r.in,
            r.size, r.stride, r.dilation, r.out, r.pad_before, r.pad_after, c.in,
            c.size, c.stride, c.dilation, c.out, c.pad_before, c.pad_after, d.in,
            d.size, d.stride, d.dilation, d.out, d.pad_before, d.pad_after};
  }
  int64_t filter_channels() const {
    return ic / groups;
  }  // the filter is [rows, columns, this, oc], of volumes [depth, rows, columns, this, oc]
  int64_t input_image() const { return depth.in * rows.in * columns.in * ic; }
  int64_t output_image() const { return depth.out * rows.out * columns.out * oc; }
  int64_t filter() const { return depth.size * rows.size * columns.size * filter_channels() * oc; }
  int64_t flops_per_image() const { return 2 * depth.out * rows.out * columns.out * filter(); }
  Shape OutputShape() const {
    if (volume) {
      return nchw ? Shape{n, oc, depth.out, rows.out, columns.out}
                  : Shape{n, depth.out, rows.out, columns.out, oc};
    }
    return nchw ? Shape{n, oc, rows.out, columns.out} : Shape{n, rows.out, columns.out, oc};
  }
};

// Groups of a convolution whose filter has fewer channels than its input. InvalidArgument if it
// does not divide into such. Negative: not known.
inline Result<int64_t> GroupsOf(int64_t input_channels, int64_t filter_channels,
                                int64_t output_channels) {
  if (filter_channels <= 0 || input_channels <= 0 || input_channels % filter_channels != 0) {
    return InvalidArgument("the input has " + std::to_string(input_channels) +
                           " channels, which is no multiple of the filter's " +
                           std::to_string(filter_channels));
  }
  const int64_t groups = input_channels / filter_channels;
  if (output_channels >= 0 && output_channels % groups != 0) {
    return InvalidArgument("an input of " + std::to_string(input_channels) +
                           " channels and a filter of " + std::to_string(filter_channels) +
                           " make " + std::to_string(groups) + " groups, into which " +
                           std::to_string(output_channels) + " output channels do not divide");
  }
  return groups;
}

inline Result<Geometry> MakeVolumeGeometry(const Attrs& attrs, const Shape& input,
                                           const Shape& filter) {
  if (input.rank() != 5 || filter.rank() != 5) {
    return InvalidArgument(
        "a convolution of volumes needs an input and a filter of 5 dimensions, "
        "got " +
        input.ToString() + " and " + filter.ToString());
  }
  MG_ASSIGN_OR_RETURN(const VolumeFormat format,
                      ParseVolumeFormat(attrs.GetOr<std::string>("data_format", "NDHWC")));
  Geometry g;
  g.volume = true;
  g.nchw = format.c == 1;
  g.n = input[format.n], g.ic = input[format.c], g.oc = filter[4];
  if (g.ic != filter[3]) {
    return InvalidArgument("the input has " + std::to_string(g.ic) + " channels, the filter " +
                           std::to_string(filter[3]));
  }
  g.depth.in = input[format.d], g.rows.in = input[format.h], g.columns.in = input[format.w];
  g.depth.size = filter[0], g.rows.size = filter[1], g.columns.size = filter[2];
  MG_RETURN_IF_ERROR(PlaceVolumeWindows(attrs, format, &g.depth, &g.rows, &g.columns));
  return g;
}

inline Result<Geometry> MakeGeometry(const Attrs& attrs, const Shape& input, const Shape& filter) {
  if (input.rank() != 4 || filter.rank() != 4) {
    return InvalidArgument("a convolution needs an input and a filter of 4 dimensions, got " +
                           input.ToString() + " and " + filter.ToString());
  }
  MG_ASSIGN_OR_RETURN(const ImageFormat format,
                      ParseImageFormat(attrs.Get<std::string>("data_format")));
  Geometry g;
  g.nchw = format.c == 1;
  g.n = input[format.n], g.ic = input[format.c], g.oc = filter[3];
  if (g.ic != filter[2]) {
    MG_ASSIGN_OR_RETURN(g.groups, GroupsOf(g.ic, filter[2], g.oc));
  }
  MG_RETURN_IF_ERROR(PlaceWindows(attrs, format, input[format.h], input[format.w], filter[0],
                                  filter[1], &g.rows, &g.columns));
  return g;
}

inline Result<Shape> ShapeFrom(const Tensor& sizes, const char* what) {
  if (sizes.shape().rank() != 1)
    return InvalidArgument(std::string(what) + " must be a vector, got shape " +
                           sizes.shape().ToString());
  if (sizes.elements() > kMaxRank) {
    return InvalidArgument(std::string(what) + " must have at most " + std::to_string(kMaxRank) +
                           " elements, got " + std::to_string(sizes.elements()));
  }
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < sizes.elements(); ++i)
    dims.push_back(sizes.dtype() == DT_INT64 ? sizes.data<int64_t>()[i] : sizes.data<int32_t>()[i]);
  auto shape = Shape::Make(dims);
  if (!shape.ok()) return shape.status().WithContext(what);
  return shape;
}

// Whether the filter comes, or its gradient goes, as [oc, rows, columns, ic], as GroupCasts has it.
inline bool FilterIsTurned(const Attrs& attrs) {
  return attrs.GetOr<bool>("filter_last_first", false);
}

// What kind of convolution an op is. Depthwise: the filter is [rows, columns, ic, m], and output
// channels i*m to i*m + m-1 see input channel i alone. kVolumeOf: a volume, whose sizes are those
// of a tensor in place of a vector (the first versions of Conv3D's gradients).
enum class Kind { kImage, kDepthwise, kVolume, kVolumeOf };

inline Kind KindOf(std::string_view op) {
  if (op.starts_with("Depthwise")) return Kind::kDepthwise;
  if (op == "Conv3DBackpropInput" || op == "Conv3DBackpropFilter") return Kind::kVolumeOf;
  return op.starts_with("Conv3D") ? Kind::kVolume : Kind::kImage;
}

// One run of a convolution or of one of its gradients.
struct Call {
  Geometry geometry;
  // The filter's: [rows, columns, ic, oc], however it lies; that of a depthwise one has 1 in place
  // of ic and comes as given_filter. So does the gradient of one that is turned.
  Shape input, filter, output;
  Shape given_filter;

  const Shape& result(Mode mode) const {
    return mode == Mode::kForward ? output : mode == Mode::kBackpropInput ? input : given_filter;
  }
  bool empty() const {
    return input.elements() == 0 || filter.elements() == 0 || output.elements() == 0;
  }
};

inline Result<Call> CallOf(Mode mode, const Attrs& attrs, const FusedOps& fused,
                           std::span<const Tensor> inputs, Kind kind = Kind::kImage) {
  Call call;
  if (mode == Mode::kBackpropInput && kind != Kind::kVolumeOf) {
    MG_ASSIGN_OR_RETURN(call.input, ShapeFrom(inputs[0], "input_sizes"));
  } else {
    call.input = inputs[0].shape();
  }
  if (mode == Mode::kBackpropFilter && kind != Kind::kVolumeOf) {
    MG_ASSIGN_OR_RETURN(call.filter, ShapeFrom(inputs[1], "filter_sizes"));
  } else {
    const Shape& filter = inputs[1].shape();
    const bool turned = FilterIsTurned(attrs) && filter.rank() == 4;
    call.filter = turned ? Shape{filter[1], filter[2], filter[3], filter[0]} : filter;
  }
  call.given_filter = call.filter;
  if (mode == Mode::kBackpropFilter && FilterIsTurned(attrs) && call.filter.rank() == 4)
    call.given_filter = Shape{call.filter[3], call.filter[0], call.filter[1], call.filter[2]};
  if (kind == Kind::kDepthwise && call.filter.rank() == 4 && call.input.rank() == 4) {
    MG_ASSIGN_OR_RETURN(const ImageFormat format,
                        ParseImageFormat(attrs.Get<std::string>("data_format")));
    if (call.filter[2] != call.input[format.c]) {
      return InvalidArgument("the input has " + std::to_string(call.input[format.c]) +
                             " channels, the filter " + std::to_string(call.filter[2]));
    }
    call.filter = Shape{call.filter[0], call.filter[1], 1, call.filter[2] * call.filter[3]};
  }
  const bool volume = kind == Kind::kVolume || kind == Kind::kVolumeOf;
  MG_ASSIGN_OR_RETURN(call.geometry, volume ? MakeVolumeGeometry(attrs, call.input, call.filter)
                                            : MakeGeometry(attrs, call.input, call.filter));
  call.output = call.geometry.OutputShape();
  if (mode != Mode::kForward && !(inputs[2].shape() == call.output)) {
    return InvalidArgument("out_backprop has shape " + inputs[2].shape().ToString() +
                           "; an input of " + call.input.ToString() + " and a filter of " +
                           call.given_filter.ToString() + " give " + call.output.ToString());
  }
  if (fused.bias && inputs[2].elements() != call.geometry.oc) {
    return InvalidArgument("a bias of shape " + inputs[2].shape().ToString() + " does not fit " +
                           std::to_string(call.geometry.oc) + " channels");
  }
  return call;
}

}  // namespace monograph::ops::conv
