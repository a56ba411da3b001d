#include <memory>
#include <string>

#include "executor/kernel.h"
#include "executor/session_tensors.h"
#include "ops/cpu/kernel_util.h"

namespace monograph::ops::session_tensor {
namespace {

// The kernels share the tensors with their session, which may be closed before a late step ends.
class SessionTensorKernel : public Kernel {
 public:
  explicit SessionTensorKernel(const KernelConstruction& c) {
    const auto* offers = dynamic_cast<const SessionTensorsConstruction*>(&c);
    if (offers != nullptr) tensors_ = offers->session_tensors();
  }

 protected:
  Result<SessionTensors*> tensors() const {
    if (tensors_ == nullptr) return FailedPrecondition("tensors are kept only in a session");
    return tensors_.get();
  }

 private:
  std::shared_ptr<SessionTensors> tensors_;
};

class HandleKernel : public SessionTensorKernel {
 public:
  explicit HandleKernel(const KernelConstruction& c)
      : SessionTensorKernel(c),
        node_(c.node_name()),
        device_(c.device()),
        as_resource_(c.output_dtype(0) == DT_RESOURCE) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(SessionTensors * kept, tensors());
    std::string handle = kept->Keep(node_, device_, c.TakeInput(0));
    MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, {}));
    if (as_resource_) {
      *output->handles() = {device_, "__per_session_tensor_handle", std::move(handle)};
    } else {
      *output->strings() = std::move(handle);
    }
    return Status();
  }

 private:
  const std::string node_, device_;
  const bool as_resource_;
};

class TensorKernel : public SessionTensorKernel {
 public:
  explicit TensorKernel(const KernelConstruction& c)
      : SessionTensorKernel(c), dtype_(c.output_dtype(0)) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const SessionTensors* kept, tensors());
    MG_ASSIGN_OR_RETURN(const std::string* handle, StringOf(c.input(0), "handle"));
    MG_ASSIGN_OR_RETURN(Tensor tensor, kept->Find(*handle));
    if (tensor.dtype() != dtype_) {
      return InvalidArgument("the tensor of '" + *handle + "' is " +
                             std::string(DTypeName(tensor.dtype())) + ", not " +
                             std::string(DTypeName(dtype_)));
    }
    c.set_output(0, std::move(tensor));
    return Status();
  }

 private:
  const DType dtype_;
};

class DeleteKernel : public SessionTensorKernel {
 public:
  using SessionTensorKernel::SessionTensorKernel;

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(SessionTensors * kept, tensors());
    MG_ASSIGN_OR_RETURN(const std::string* handle, StringOf(c.input(0), "handle"));
    return kept->Delete(*handle);
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<HandleKernel>({.op = "GetSessionHandle"});
  registry->Add<HandleKernel>({.op = "GetSessionHandleV2"});
  registry->Add<TensorKernel>({.op = "GetSessionTensor"});
  registry->Add<DeleteKernel>({.op = "DeleteSessionTensor"});
}

}  // namespace monograph::ops::session_tensor
