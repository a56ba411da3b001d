#include "executor/step/call_kernel.h"

#include <utility>

#include "executor/step/step_executor.h"
#include "executor/worker/step_ids.h"

namespace monograph {
namespace {

class CallKernel : public AsyncKernel {
 public:
  explicit CallKernel(std::shared_ptr<const Plan> body) : body_(std::move(body)) {}

  void ComputeAsync(KernelContext& context, Done done) override {
    // Results go straight to the context, which lives until `done`. Each output is written once, so
    // threads do not meet.
    struct Call : StepSink {
      KernelContext* context;
      Done done;
      void OnSend(uint64_t, const EdgeInfo& edge, Tensor tensor) override {
        context->set_output(edge.id, std::move(tensor));
      }
    };
    auto call = std::make_shared<Call>();
    call->context = &context;
    call->done = std::move(done);
    const std::shared_ptr<Step> step =
        StepExecutor::Prepare(body_, StepId(context.step_id()), call.get(),
                              [call](const Status& status) { call->done(status); });
    const bool open = context.OnCancel([weak = std::weak_ptr<Step>(step)] {
      if (auto running = weak.lock())
        running->Abort(Cancelled("the calling step was aborted").AsDerived());
    });
    for (const EdgeInfo& edge : body_->recv_edges())
      step->Deliver(edge.id, context.TakeInput(edge.id));
    if (open) {
      step->Start();
    } else {
      step->Abort(Cancelled("the calling step was aborted").AsDerived());
    }
  }

 private:
  const std::shared_ptr<const Plan> body_;
};

}  // namespace

std::unique_ptr<Kernel> MakeCallKernel(std::shared_ptr<const Plan> body) {
  return std::make_unique<CallKernel>(std::move(body));
}

}  // namespace monograph
