// What a borrowed op costs (executor/borrowed.h): a chain of them in a step, against the same calls
// of TensorFlow's C API one after another. The op is so small that all of it is the cost of calls.
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "bench/harness.h"
#include "client/session.h"
#include "executor/borrowed.h"
#include "executor/tensorflow/library.h"
#include "monograph/monograph.h"

namespace monograph {
namespace {

constexpr int kCalls = 1000;

// Calls of the C API, each with the output of the one before.
class Bare {
 public:
  explicit Bare(const tensorflow::Library& library)
      : library_(library), status_(library->TF_NewStatus()) {
    static float values[4] = {1, 2, 3, 4};
    const int64_t dims[] = {4};
    tensorflow::TF_Tensor* const tensor = library->TF_NewTensor(
        DT_FLOAT, dims, 1, values, sizeof values, [](void*, size_t, void*) {}, nullptr);
    input_ = library->TFE_NewTensorHandle(tensor, status_);
    library->TF_DeleteTensor(tensor);
  }

  double MicrosecondsPerCall() {
    const double start = bench::Now();
    tensorflow::TFE_TensorHandle* last = input_;
    for (int i = 0; i < kCalls; ++i) {
      tensorflow::TFE_Op* const op = library_->TFE_NewOp(library_.context(), "Dawsn", status_);
      library_->TFE_OpAddInput(op, last, status_);
      tensorflow::TFE_TensorHandle* output = nullptr;
      int count = 1;
      library_->TFE_Execute(op, &output, &count, status_);
      library_->TFE_DeleteOp(op);
      if (last != input_) library_->TFE_DeleteTensorHandle(last);
      last = output;
    }
    library_->TFE_DeleteTensorHandle(last);
    if (!library_.StatusOf(status_).ok()) bench::Die(library_.StatusOf(status_).ToString());
    return (bench::Now() - start) * 1e6 / kCalls;
  }

 private:
  const tensorflow::Library& library_;
  tensorflow::TF_Status* const status_;
  tensorflow::TFE_TensorHandle* input_ = nullptr;
};

int Main(int argc, char** argv) {
  const bench::Args args = bench::Args::Parse(
      argc, argv, "borrowed_bench: microseconds of a borrowed op against TensorFlow's C API");
  if (!args.Wants("a small op in a chain")) return 0;
  if (!args.tensorflow.empty()) NameTensorFlow(args.tensorflow);
  Graph graph = NewGraph();
  const Scope root(&graph);
  const Result<const tensorflow::Library*> library = tensorflow::Library::Open();
  if (!library.ok()) {
    std::printf("left out: %s\n", library.status().message().c_str());
    return 0;
  }
  const Output x = Placeholder(root, DT_FLOAT, {4});
  Output y = x;
  for (int i = 0; i < kCalls; ++i) y = OpBuilder(root, "Dawsn").Input(y).BuildOutput();
  const std::unique_ptr<Session> session = Session::Local(graph).value();
  const Callable step = session->MakeCallable({x}, {y}).value();
  const std::vector<Tensor> feeds = {Tensor::Vector<float>({1, 2, 3, 4})};
  Bare bare(**library);
  bench::Report report(args);
  report.Compare(
      "borrowed", "us/call", {{"a small op in a chain", bench::Goal{2.3, bench::Goal::kMax}}},
      bench::Side::Of("ours",
                      [&] {
                        const double start = bench::Now();
                        if (!session->RunCallable(step, feeds).ok()) bench::Die("a step");
                        return (bench::Now() - start) * 1e6 / kCalls;
                      }),
      {bench::Side::Of("C API", [&] { return bare.MicrosecondsPerCall(); })}, args.Repetitions(51));
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
