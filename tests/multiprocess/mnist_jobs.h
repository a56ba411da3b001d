// What tests of whole jobs share: mnist_replica, one process per client, as users start it.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {

// Longest wait for anything in a job; on an idle machine a second is enough.
inline constexpr auto kLimit = 60s;
inline constexpr char kForever[] = "--num_batches=1000000";

// The command line of worker `rank`'s client: a short job between graphs, unless `flags`, which
// come last, say otherwise.
std::vector<std::string> Client(const TestCluster& cluster, int rank,
                                const std::vector<std::string>& flags);

// It ends by itself, with 0.
bool Succeeds(ChildProcess& client);
// It ends with 1, and its one error holds all of `parts`.
void ExpectFails(ChildProcess& client, std::initializer_list<std::string> parts);

// One way of replication, as flags.
struct JobMode {
  std::string name;
  std::vector<std::string> flags;
  int ps = 0, clients = 1;
  std::string progress = ", Step: ";  // what a line of progress has
};

// A job of two workers that trains until it is ended.
class Job {
 public:
  explicit Job(JobMode its_mode, const std::vector<std::string>& flags = {});

  // Again, after it has ended.
  void StartClient(int rank);
  // Every client has trained.
  bool Trains();
  // The client prints steps that it makes from now on.
  bool GoesOn(int client) const;
  // What all clients said, for messages.
  std::string Said() const;
  ChildProcess& client(int rank) const { return *clients[static_cast<size_t>(rank)]; }

  const JobMode mode;
  TestCluster cluster;
  std::vector<std::unique_ptr<ChildProcess>> clients;

 private:
  std::vector<std::string> flags_;
};

}  // namespace monograph
