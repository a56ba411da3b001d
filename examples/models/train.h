// The loop of examples that train on made-up images.
#pragma once

#include "base/status.h"
#include "client/session.h"

namespace monograph::examples {

// Runs `init`, then `train` with `steps` batches of images and labels, the placeholders `feeds` of
// a known number of rows; every tenth step prints the two `results`, a loss and `second`.
Status TrainOnSyntheticImages(Session* session, const Outputs& feeds, const Operation& init,
                              const Operation& train, const Outputs& results, const char* second,
                              int steps);

}  // namespace monograph::examples
