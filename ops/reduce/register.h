// ArgMax, ArgMin, Cumsum, Cumprod and CumulativeLogsumexp, whose kernels lie in a file of their
// own.
#pragma once

namespace monograph {
class KernelRegistry;
}

namespace monograph::ops::reduce {

void RegisterArgAndScan(KernelRegistry* registry);
void RegisterArgAndScanCuda(KernelRegistry* registry);

}  // namespace monograph::ops::reduce
