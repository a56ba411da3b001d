// A process of transport_peer (transport_peer_main.cc), killed with the object.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace monograph {

class TransportPeer {
 public:
  explicit TransportPeer(std::vector<std::string> arguments);
  ~TransportPeer();
  TransportPeer(const TransportPeer&) = delete;
  TransportPeer& operator=(const TransportPeer&) = delete;

  std::string ReadLine();  // "": it has ended
  void WriteLine(const std::string& line);
  void Signal(int number);
  // Returns when the process has stopped.
  void Stop();
  void Kill();

 private:
  pid_t pid_ = -1;
  Descriptor in_;
  FILE* out_ = nullptr;
};

}  // namespace monograph
