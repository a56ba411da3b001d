#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "executor/kernel.h"
#include "ops/py_func/py_func.h"

namespace monograph {
namespace {

struct Handler {
  Mutex mutex;
  std::shared_ptr<const PyFuncHandler> handler MG_GUARDED_BY(mutex);
};

Handler& ProcessHandler() {
  static auto* const handler = new Handler;  // steps may outlive static objects
  return *handler;
}

}  // namespace

void SetPyFuncHandler(PyFuncHandler handler) {
  Handler& process = ProcessHandler();
  MutexLock lock(process.mutex);
  process.handler = std::make_shared<const PyFuncHandler>(std::move(handler));
}

namespace ops::py_func {
namespace {

class PyFuncKernel : public Kernel {
 public:
  explicit PyFuncKernel(const KernelConstruction& c)
      : token_(c.attr<std::string>("token")),
        types_(c.attr<std::vector<DType>>("Tout")),
        eager_(c.op() == "EagerPyFunc") {}

  Status Compute(KernelContext& c) override {
    if (!c.may_wait()) return c.Busy();
    std::shared_ptr<const PyFuncHandler> handler;
    {
      Handler& process = ProcessHandler();
      MutexLock lock(process.mutex);
      handler = process.handler;
    }
    if (handler == nullptr) {
      return FailedPrecondition(
          "the function '" + token_ + "' is not in this process (" + std::string(c.device()) +
          "), but in the program that made it: leave the node without a device, which places it in "
          "the client, or put it on a task that the program hosts itself");
    }
    PyFuncCall call{.token = token_, .eager = eager_, .types = types_};
    for (int i = 0; i < c.num_inputs(); ++i) call.inputs.push_back(c.TakeInput(i));
    MG_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, (*handler)(std::move(call)));
    if (outputs.size() != types_.size()) {
      return InvalidArgument("the function '" + token_ + "' returns " +
                             std::to_string(outputs.size()) + " values; the node has " +
                             std::to_string(types_.size()) + " outputs");
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].dtype() != types_[i]) {
        return InvalidArgument("the function '" + token_ + "' returns " +
                               std::string(DTypeName(outputs[i].dtype())) + " as value " +
                               std::to_string(i) + "; the node's output is " +
                               std::string(DTypeName(types_[i])));
      }
      c.set_output(static_cast<int>(i), std::move(outputs[i]));
    }
    return Status();
  }

 private:
  const std::string token_;
  const std::vector<DType> types_;
  const bool eager_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  for (const char* const op : {"PyFunc", "PyFuncStateless", "EagerPyFunc"})
    registry->Add<PyFuncKernel>({.op = op});
}

}  // namespace ops::py_func
}  // namespace monograph
