// Which simulated machine a thread belongs to. A thread that is started belongs to the machine of
// the one that starts it (the scheduler sees to that).
#pragma once

namespace monograph::simulation {

// 0: that of the client, where a schedule begins.
int CurrentHost();

// The calling thread belongs to `host` as long as this lives.
class OnHost {
 public:
  explicit OnHost(int host);
  ~OnHost();
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

 private:
  const int before_;
};

}  // namespace monograph::simulation
