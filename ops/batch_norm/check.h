// What the kernels of batch normalisation for every device check before they compute.
#pragma once

#include <span>
#include <string>

#include "base/tensor.h"
#include "graph/attr.h"
#include "ops/channels.h"

namespace monograph::ops::batch_norm {

struct Settings {
  explicit Settings(const Attrs& attrs)
      : epsilon(attrs.Get<float>("epsilon")),
        factor(attrs.GetOr<float>("exponential_avg_factor", 1.f)),
        channels_first(attrs.Get<std::string>("data_format")[1] == 'C'),
        rank(static_cast<int>(attrs.Get<std::string>("data_format").size())),
        training(attrs.Get<bool>("is_training")),
        side(attrs.GetOr<int64_t>("num_side_inputs", 0) > 0),
        added(attrs.GetOr<int64_t>("num_added", 0)),
        relu(attrs.GetOr<std::string>("activation_mode", "Identity") == "Relu") {}

  float epsilon, factor;
  bool channels_first;
  int rank;
  bool training;
  bool side;      // what _FusedBatchNormEx does after: y = relu(normalised x + side input)
  int64_t added;  // _FusedBatchNormGradEx: gradients that y_backprop lacks
  bool relu;
};

inline Status CheckVector(const Tensor& tensor, int64_t channels, const char* what) {
  if (tensor.shape().rank() == 1 && tensor.elements() == channels) return Status();
  return InvalidArgument(std::string(what) + " has shape " + tensor.shape().ToString() +
                         "; one element for each of the " + std::to_string(channels) +
                         " channels is needed");
}

inline Result<Channels> CheckImages(const Tensor& x, const Settings& settings) {
  if (x.shape().rank() != settings.rank) {
    return InvalidArgument("x must have " + std::to_string(settings.rank) +
                           " dimensions, got shape " + x.shape().ToString());
  }
  return ChannelsOf(x.shape(), settings.channels_first);
}

// Of the inputs of FusedBatchNormV3 and _FusedBatchNormEx.
inline Result<Channels> CheckForward(std::span<const Tensor> inputs, const Settings& settings) {
  MG_ASSIGN_OR_RETURN(const Channels l, CheckImages(inputs[0], settings));
  MG_RETURN_IF_ERROR(CheckVector(inputs[1], l.channels, "scale"));
  MG_RETURN_IF_ERROR(CheckVector(inputs[2], l.channels, "offset"));
  if (!settings.training || settings.factor != 1.f) {
    MG_RETURN_IF_ERROR(CheckVector(inputs[3], l.channels, "mean"));
    MG_RETURN_IF_ERROR(CheckVector(inputs[4], l.channels, "variance"));
  }
  if (settings.side && !(inputs[5].shape() == inputs[0].shape())) {
    return InvalidArgument("the side input has shape " + inputs[5].shape().ToString() +
                           ", x has shape " + inputs[0].shape().ToString());
  }
  return l;
}

// Of the inputs of FusedBatchNormGradV3 and _FusedBatchNormGradEx.
inline Result<Channels> CheckBackward(std::span<const Tensor> inputs, const Settings& settings) {
  MG_ASSIGN_OR_RETURN(const Channels l, CheckImages(inputs[1], settings));
  if (!(inputs[0].shape() == inputs[1].shape())) {
    return InvalidArgument("y_backprop " + inputs[0].shape().ToString() + " and x " +
                           inputs[1].shape().ToString() + " must have one shape");
  }
  MG_RETURN_IF_ERROR(CheckVector(inputs[2], l.channels, "scale"));
  MG_RETURN_IF_ERROR(CheckVector(inputs[3], l.channels, "the mean (reserve_space_1)"));
  MG_RETURN_IF_ERROR(CheckVector(inputs[4], l.channels, "the variance (reserve_space_2)"));
  if (settings.side ? !settings.relu || settings.added > 1 : settings.added > 0) {
    return Unimplemented(
        "the gradient of a batch normalisation whose y_backprop lacks " +
        std::to_string(settings.added) +
        " gradients, or with a side input and no ReLU; one may be lacking, with both");
  }
  if (!settings.relu) return l;
  MG_RETURN_IF_ERROR(CheckVector(inputs[6], l.channels, "offset"));
  for (size_t i = 7; i < inputs.size(); ++i) {
    if (!(inputs[i].shape() == inputs[0].shape())) {
      return InvalidArgument("y_backprop " + inputs[0].shape().ToString() + " and " +
                             (i == 7 ? "y " : "what is added to it ") +
                             inputs[i].shape().ToString() + " must have one shape");
    }
  }
  return l;
}

}  // namespace monograph::ops::batch_norm
