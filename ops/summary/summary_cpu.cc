#include <set>
#include <string>

#include "executor/kernel.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/summary/histogram.h"

namespace monograph::ops::summary {
namespace {

Status SetSummary(KernelContext& c, const pb::Summary& summary) {
  MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, Shape()));
  if (c.RoomForStrings(summary.ByteSizeLong())) output->strings()[0] = summary.SerializeAsString();
  return Status();
}

Result<std::string> TagOf(const Tensor& tag) {
  if (tag.shape().rank() != 0)
    return InvalidArgument("the tag has shape " + tag.shape().ToString() + "; it must be a scalar");
  return tag.strings()[0];
}

class ScalarSummaryKernel : public Kernel {
 public:
  explicit ScalarSummaryKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    const Tensor &tags = c.input(0), &values = c.input(1);
    // One value may have one tag whatever their ranks are.
    if (tags.shape() != values.shape() && !(tags.elements() == 1 && values.elements() == 1)) {
      return InvalidArgument("tags and values are not of the same shape: " +
                             tags.shape().ToString() + " and " + values.shape().ToString());
    }
    MG_ASSIGN_OR_RETURN(const std::vector<double> numbers, Numbers(values));
    pb::Summary summary;
    Looks looks(c);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!looks.GoOn(tags.strings()[i])) return Status();
      pb::Summary::Value* value = summary.add_value();
      value->set_tag(tags.strings()[i]);
      value->set_simple_value(static_cast<float>(numbers[i]));
    }
    return SetSummary(c, summary);
  }
};

class HistogramSummaryKernel : public Kernel {
 public:
  explicit HistogramSummaryKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::string tag, TagOf(c.input(0)));
    pb::Summary summary;
    pb::Summary::Value* value = summary.add_value();
    value->set_tag(tag);
    MG_RETURN_IF_ERROR(
        FillHistogram(tag, c.input(1), value->mutable_histo(), [&c] { return !c.cancelled(); }));
    return SetSummary(c, summary);
  }
};

class TensorSummaryKernel : public Kernel {
 public:
  explicit TensorSummaryKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::string tag, TagOf(c.input(0)));
    const Tensor &tensor = c.input(1), &metadata = c.input(2);
    pb::Summary summary;
    pb::Summary::Value* value = summary.add_value();
    value->set_tag(tag);
    if (metadata.elements() != 1 ||
        !value->mutable_metadata()->ParseFromString(metadata.strings()[0]))
      return InvalidArgument("the metadata of '" + tag + "' is no serialised SummaryMetadata");
    pb::SummaryTensor* const proto = value->mutable_tensor();
    proto->set_dtype(tensor.dtype());
    pb::SummaryTensor::Shape* const shape = proto->mutable_tensor_shape();
    for (int i = 0; i < tensor.shape().rank(); ++i) shape->add_dim()->set_size(tensor.shape()[i]);
    if (IsPlainData(tensor.dtype())) {
      proto->set_tensor_content(tensor.raw(), tensor.bytes());
    } else if (tensor.dtype() == DT_STRING) {
      Looks looks(c);
      for (int64_t i = 0; i < tensor.elements(); ++i) {
        if (!AppendText(&looks, tensor.strings()[i], proto->add_string_val())) return Status();
      }
    } else {
      return InvalidArgument("a tensor of " + std::string(DTypeName(tensor.dtype())) +
                             " cannot be summarised");
    }
    return SetSummary(c, summary);
  }
};

class MergeSummaryKernel : public Kernel {
 public:
  explicit MergeSummaryKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    pb::Summary merged;
    std::set<std::string> tags;
    Looks looks(c);
    for (const Tensor& input : c.inputs()) {
      for (int64_t i = 0; i < input.elements(); ++i) {
        if (!looks.GoOn(input.strings()[i])) return Status();
        pb::Summary summary;
        if (!summary.ParseFromString(input.strings()[i]))
          return InvalidArgument("an input is no serialised Summary");
        for (pb::Summary::Value& value : *summary.mutable_value()) {
          // A tag may be missing: older summaries have the node's name.
          if (!value.tag().empty() && !tags.insert(value.tag()).second)
            return InvalidArgument("the tag '" + value.tag() + "' is in two of the summaries");
          *merged.add_value() = std::move(value);
        }
      }
    }
    return SetSummary(c, merged);
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<ScalarSummaryKernel>({.op = "ScalarSummary"});
  registry->Add<HistogramSummaryKernel>({.op = "HistogramSummary"});
  registry->Add<TensorSummaryKernel>({.op = "TensorSummaryV2"});
  registry->Add<MergeSummaryKernel>({.op = "MergeSummary"});
}

}  // namespace monograph::ops::summary
