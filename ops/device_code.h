// MG_HD: functors that kernels for the CPU and for CUDA share.
#pragma once

#ifdef __CUDACC__
#define MG_HD __host__ __device__
#else
#define MG_HD
#endif
