// The flags of every task, daemon or client: how its process computes and how it meets other tasks.
// Each is declared here and nowhere else; values go straight into the options of the session or the
// daemon, which outlive the parsing.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "executor/gpu_options.h"
#include "tools/flags.h"
#include "transport/control/key_ring.h"
#include "transport/transports.h"

namespace monograph {

// --key_file. REQUIRES: outlives the parsing.
struct KeyFlag {
  std::string file;

  void AddTo(Flags* flags);
  // The key in the file or, if none is given, in that of the environment's MONOGRAPH_KEY_FILE; none
  // if neither names a file. An error has the file's path.
  Result<std::optional<control::KeyRing>> Read() const;
};

void AddThreadFlags(Flags* flags, int* inter_op_parallelism_threads,
                    int* intra_op_parallelism_threads);

// --tensorflow: whose ops are borrowed (executor/borrowed.h).
void AddTensorFlowFlag(Flags* flags);

// --memory_limit, of the pool of this process (base/pool_allocator.h).
void AddMemoryFlag(Flags* flags);

void AddTransportFlags(Flags* flags, TransportOptions* options);

// How the process uses its GPUs, as a section. Parsing fails if CheckGpuOptions would.
void AddGpuFlags(Flags* flags, GpuOptions* options);

}  // namespace monograph
