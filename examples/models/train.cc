#include "examples/models/train.h"

#include <cstdio>

#include "ops/input/input.h"

namespace monograph::examples {

Status TrainOnSyntheticImages(Session* session, const Outputs& feeds, const Operation& init,
                              const Operation& train, const Outputs& results, const char* second,
                              int steps) {
  MG_RETURN_IF_ERROR(session->Run({}, {}, {init}).status());
  MG_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> data, LoadDataset({.name = "synthetic"}));
  MG_ASSIGN_OR_RETURN(const std::unique_ptr<BatchStream> batches,
                      BatchStream::Make(std::move(data), {.batch_size = feeds[0].shape().dim(0)}));
  for (int step = 1; step <= steps; ++step) {
    MG_ASSIGN_OR_RETURN(const Batch batch, batches->Get(step - 1));
    MG_ASSIGN_OR_RETURN(
        const std::vector<Tensor> values,
        session->Run({{feeds[0], batch.images}, {feeds[1], batch.labels}}, results, {train}));
    if (step % 10 == 0)
      std::printf("step %d  loss %.3f  %s %.3f\n", step, values[0].scalar<float>(), second,
                  values[1].scalar<float>());
  }
  return Status();
}

}  // namespace monograph::examples
