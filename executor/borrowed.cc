#include "executor/borrowed.h"

#include <cstdlib>
#include <utility>

#include "executor/tensorflow/borrowed_kernel.h"
#include "executor/tensorflow/definitions.h"
#include "executor/tensorflow/helper.h"

namespace monograph {
namespace {

// The library prints what it also returns as errors, and notes about the machine. It reads this
// when it is opened, when it may be too late to set it: other threads read the environment.
void KeepQuiet() { setenv("TF_CPP_MIN_LOG_LEVEL", "3", /*overwrite=*/0); }

}  // namespace

void BorrowFromTensorFlow() {
  if (std::getenv("MONOGRAPH_TENSORFLOW") != nullptr) KeepQuiet();
  static const auto* const entry =
      new KernelRegistry::Entry{{.op = "(borrowed)"}, tensorflow::MakeBorrowedKernel};
  SetBorrowedKernel(entry);
  SetOpSource(&tensorflow::Definitions::Get());
}

void NameTensorFlow(std::string interpreter) {
  KeepQuiet();
  tensorflow::Helper::Get().SetInterpreter(std::move(interpreter));
}

Result<std::string> TensorFlowVersion() {
  MG_ASSIGN_OR_RETURN(const auto* package, tensorflow::Helper::Get().package());
  return "TensorFlow " + package->version;
}

std::vector<const OpDef*> BorrowedOps() { return tensorflow::Definitions::Get().All(); }

std::map<std::string, std::set<DType>> BorrowedTypes(const std::string& op) {
  return tensorflow::Definitions::Get().KernelTypes(op);
}

std::map<std::string, std::string, std::less<>> RefusedOps() {
  return tensorflow::Definitions::Get().Refused();
}

}  // namespace monograph
