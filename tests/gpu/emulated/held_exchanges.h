// Holds up the exchanges of the emulated NCCL (tests/gpu/emulated/nccl.cc): those of this process,
// or of a daemon.
#pragma once

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

namespace monograph::emulated {

class HeldExchanges {
 public:
  // `file`: what MG_EMULATED_NCCL_HOLD says in the process.
  explicit HeldExchanges(std::string file) : file_(std::move(file)) {}
  ~HeldExchanges() { Release(); }
  HeldExchanges(const HeldExchanges&) = delete;
  HeldExchanges& operator=(const HeldExchanges&) = delete;

  const std::string& file() const { return file_; }
  void Hold() {
    (void)unlink(Waiting().c_str());
    std::ofstream(file_) << "hold\n";
  }
  // False if none has come to it within a minute.
  bool OneWaits() const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (access(Waiting().c_str(), F_OK) != 0) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  void LoseTheGpu() { std::ofstream(file_) << "lose\n"; }
  void Release() {
    (void)unlink(file_.c_str());
    (void)unlink(Waiting().c_str());
  }

 private:
  std::string Waiting() const { return file_ + ".waits"; }
  const std::string file_;
};

}  // namespace monograph::emulated
