// GPUs as cuDNN describes them: it ranks engines and makes plans for them without one.
#pragma once

#include <string_view>

namespace monograph::emulated {

inline constexpr std::string_view kH200 =
    R"({"deviceName": "NVIDIA H200", "deviceVer": 900, "multiProcessorCount": 132,
    "maxSharedMemoryPerBlockOptin": 232448, "totalGlobalMem": 150754820096,
    "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 52428800,
    "pciDeviceId": 0, "cudaDeviceId": 0, "driverVer": 13000,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "isTccDriver": 0, "supportCoopLaunch": 1})";
inline constexpr std::string_view kA100 =
    R"({"deviceName": "NVIDIA A100-SXM4-80GB", "deviceVer": 800,
    "multiProcessorCount": 108, "maxSharedMemoryPerBlockOptin": 166912,
    "totalGlobalMem": 85899345920, "smClockRateKHz": 1410000,
    "memClockRateKHz": 1593000, "l2CacheSize": 41943040, "pciDeviceId": 0,
    "cudaDeviceId": 0, "driverVer": 13000,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "isTccDriver": 0, "supportCoopLaunch": 1})";

}  // namespace monograph::emulated
