#include "tests/multiprocess/mnist_jobs.h"

namespace monograph {

std::vector<std::string> Client(const TestCluster& cluster, int rank,
                                const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {MG_MNIST_REPLICA,
                                   "--data_name=synthetic",
                                   "--fc=16",
                                   "--batch_size=20",
                                   "--num_warmup_batches=0",
                                   "--display_every=5",
                                   "--num_batches=30",
                                   "--replication=between_graph",
                                   "--cluster=" + cluster.json(),
                                   "--task_index=" + std::to_string(rank)};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

bool Succeeds(ChildProcess& client) {
  const std::optional<Exit> exit = client.Wait(kLimit);
  return exit && !exit->signalled && exit->code == 0;
}

void ExpectFails(ChildProcess& client, std::initializer_list<std::string> parts) {
  const std::optional<Exit> exit = client.Wait(kLimit);
  ASSERT_TRUE(exit) << "it still runs: " << client.output() << client.error();
  EXPECT_EQ(exit->code, 1) << client.error();
  const std::string error = client.error();
  const size_t line = error.find("mnist_replica: ");
  ASSERT_NE(line, std::string::npos) << error;
  EXPECT_EQ(error.find("mnist_replica: ", line + 1), std::string::npos) << error;
  for (const std::string& part : parts)
    EXPECT_NE(error.find(part, line), std::string::npos) << "no '" << part << "' in: " << error;
}

Job::Job(JobMode its_mode, const std::vector<std::string>& flags)
    : mode(std::move(its_mode)),
      cluster({.ps = mode.ps, .workers = 2, .flags = {"--cpu_devices=2"}}) {
  flags_ = mode.flags;
  flags_.push_back(kForever);
  flags_.insert(flags_.end(), flags.begin(), flags.end());
  clients.resize(static_cast<size_t>(mode.clients));
  for (int rank = 0; rank < mode.clients; ++rank) StartClient(rank);
}

void Job::StartClient(int rank) {
  clients[static_cast<size_t>(rank)] =
      std::make_unique<ChildProcess>(Client(cluster, rank, flags_));
}

bool Job::Trains() {
  if (!clients[0]->WaitForOutput(mode.progress, kLimit)) return false;
  // Not every client prints what it does.
  constexpr uint64_t kSteps = 10;
  for (int worker = 0; worker < 2; ++worker) {
    const bool trained = cluster.WaitForStatus(
        "worker", worker, [](const auto& status) { return status.steps_done() > kSteps; }, kLimit);
    if (!trained) return false;
  }
  return true;
}

bool Job::GoesOn(int client) const {
  return clients[static_cast<size_t>(client)]->WaitForMoreOutput(mode.progress, kLimit);
}

std::string Job::Said() const {
  std::string said = mode.name + ":";
  for (const auto& client : clients) said += "\n" + client->output() + client->error();
  return said;
}

}  // namespace monograph
