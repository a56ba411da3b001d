// Bare UCX: what a data plane costs at the very least. One ucp worker, active messages, the same
// idle policy as ours (spin, then sleep).
#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"

namespace monograph::bench {

inline constexpr auto kSpin = std::chrono::microseconds(50);

// Touched memory on huge pages.
char* HugePages(size_t bytes);

// For one thread. Any failure ends the program.
class RawUcx {
 public:
  // Large messages land in `sink`.
  RawUcx(const std::string& lanes, char* sink);

  std::string address() const;
  void Connect(const std::string& address);                      // the next peer: 0, 1, ...
  void SendSmall(size_t peer);                                   // 64 bytes, eager
  void* SendLarge(size_t peer, const void* data, size_t bytes);  // a request for Wait
  void Wait(void* request);

  // Drives the worker until ready(); spins for kSpin without news, then sleeps on the worker's
  // event descriptor.
  template <typename Ready>
  void WaitUntil(Ready ready) {
    int polls = 0;
    bool idle = false;
    std::chrono::steady_clock::time_point since;
    while (!ready()) {
      if (ucp_worker_progress(worker_) != 0) {
        idle = false;
        polls = 0;
        continue;
      }
      if (++polls <= 50) continue;
      polls = 0;
      Pause(&idle, &since);
    }
  }

  long small = 0, large = 0;  // messages that have arrived

 private:
  static ucs_status_t OnLarge(void* arg, const void*, size_t, void* data, size_t bytes,
                              const ucp_am_recv_param_t* param);
  void Pause(bool* idle, std::chrono::steady_clock::time_point* since);

  char* const sink_;
  ucp_worker_h worker_;
  int event_fd_;
  std::vector<ucp_ep_h> endpoints_;
};

// A process that answers, and the same on the client's side: K of them are the floor of a null
// step, one that of a transfer.
class RawServers {
 public:
  // Forks. REQUIRES: no other threads, and no UCX in this process yet.
  RawServers(int count, size_t largest, const std::string& lanes = "");
  // Connects all; may be called when threads exist. No fork should follow: it would split the huge
  // pages of the source.
  void Connect();

  // Seconds per step: a message to each of the first `fan_out` processes, and the answers of all.
  double NullStep(int fan_out, long steps);
  // Bytes per second into the memory of process 0, `window` transfers at a time.
  double Transfer(size_t bytes, int window, long count);
  // Seconds in which process 0 gets so many bytes, adds them as floats to its own, and says so.
  double TransferAndAdd(size_t bytes, long count);

 private:
  const size_t largest_;
  const std::string lanes_;
  char* source_ = nullptr;
  std::vector<std::unique_ptr<Child>> children_;
  std::unique_ptr<RawUcx> raw_;
};

std::string ToHex(const std::string& bytes);
std::string FromHex(const std::string& hex);

}  // namespace monograph::bench
