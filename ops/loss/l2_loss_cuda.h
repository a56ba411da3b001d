// L2Loss on a GPU, whose kernel lies in a file of its own.
#pragma once

namespace monograph {
class KernelRegistry;
}

namespace monograph::ops::loss {

void RegisterL2LossCuda(KernelRegistry* registry);

}  // namespace monograph::ops::loss
