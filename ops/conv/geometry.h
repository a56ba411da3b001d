// The geometry of a convolution: what the kernels for every device check before they compute.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
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

  using Key = std::array<int64_t, 19>;
  Key key() const {
    const Window &r = rows, &c = columns;
    return {n,          ic,    oc,           nchw,        r.in,  r.size, r.stride,
            r.dilation, r.out, r.pad_before, r.pad_after, c.in,  c.size, c.stride,
            c.dilation, c.out, c.pad_before, c.pad_after, groups};
  }
  int64_t filter_channels() const {
    return ic / groups;
  }  // the filter is [rows, columns, this, oc]
  int64_t input_image() const { return rows.in * columns.in * ic; }
  int64_t output_image() const { return rows.out * columns.out * oc; }
  int64_t filter() const { return rows.size * columns.size * filter_channels() * oc; }
  int64_t flops_per_image() const { return 2 * rows.out * columns.out * filter(); }
  Shape OutputShape() const {
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
  const std::vector<int64_t> dims(sizes.data<int32_t>(), sizes.data<int32_t>() + sizes.elements());
  auto shape = Shape::Make(dims);
  if (!shape.ok()) return shape.status().WithContext(what);
  return shape;
}

// Whether the filter comes as [oc, rows, columns, ic], as GroupCasts lays it.
inline bool FilterIsTurned(const Attrs& attrs) {
  return attrs.GetOr<bool>("filter_last_first", false);
}

// One run of Conv2D, _FusedConv2D, Conv2DBackpropInput or Conv2DBackpropFilter.
struct Call {
  Geometry geometry;
  Shape input, filter, output;  // the filter's: [rows, columns, ic, oc], however it lies

  const Shape& result(Mode mode) const {
    return mode == Mode::kForward ? output : mode == Mode::kBackpropInput ? input : filter;
  }
  bool empty() const {
    return input.elements() == 0 || filter.elements() == 0 || output.elements() == 0;
  }
};

inline Result<Call> CallOf(Mode mode, const Attrs& attrs, const FusedOps& fused,
                           std::span<const Tensor> inputs) {
  Call call;
  if (mode == Mode::kBackpropInput) {
    MG_ASSIGN_OR_RETURN(call.input, ShapeFrom(inputs[0], "input_sizes"));
  } else {
    call.input = inputs[0].shape();
  }
  if (mode == Mode::kBackpropFilter) {
    MG_ASSIGN_OR_RETURN(call.filter, ShapeFrom(inputs[1], "filter_sizes"));
  } else {
    const Shape& filter = inputs[1].shape();
    const bool turned = FilterIsTurned(attrs) && filter.rank() == 4;
    call.filter = turned ? Shape{filter[1], filter[2], filter[3], filter[0]} : filter;
  }
  MG_ASSIGN_OR_RETURN(call.geometry, MakeGeometry(attrs, call.input, call.filter));
  call.output = call.geometry.OutputShape();
  if (mode != Mode::kForward && !(inputs[2].shape() == call.output)) {
    return InvalidArgument("out_backprop has shape " + inputs[2].shape().ToString() +
                           "; an input of " + call.input.ToString() + " and a filter of " +
                           call.filter.ToString() + " give " + call.output.ToString());
  }
  if (fused.bias && inputs[2].elements() != call.geometry.oc) {
    return InvalidArgument("a bias of shape " + inputs[2].shape().ToString() + " does not fit " +
                           std::to_string(call.geometry.oc) + " channels");
  }
  return call;
}

}  // namespace monograph::ops::conv
