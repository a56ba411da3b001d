// TransportFlags: the flags by which a program's user says how the data plane of its process is
// made.
#pragma once

#include <string>

#include "tools/flags.h"
#include "transport/transports.h"

namespace monograph {

struct TransportFlags {
  std::string lanes, net_devices;
  int spin_us = 50;

  // Those of every program. REQUIRES: outlives the parsing.
  void AddTo(Flags* flags);
  // Those, and what only daemons have.
  void AddDaemonTo(Flags* flags);
  TransportOptions Options() const;
};

}  // namespace monograph
