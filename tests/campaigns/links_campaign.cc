// Cuts, partial partitions and bad links, between jobs that train on several hosts (network
// namespaces), in all ways of replication, drawn from a seed. Each trial starts a job, harms the
// network, and looks: whoever cannot go on has an error within three seconds of the harm, and ends;
// after the heal the next job runs at once; with --train_dir a job ends with the bits of one that
// nothing happened to; over a slow, lossy or flapping link it ends, with those bits, too.
//
//   links_campaign --cuts=200 --partitions=100 --slow=100 --recoveries=50 --seed=7
//
// Tasks meet by TLS, or with --trusted_network by UCX's TCP. The daemons live as long as the
// campaign, so that what one trial leaves behind meets the next. What a trial draws follows from
// the seed and its number alone: --first=117 --cuts=1 does one again, and several campaigns may
// share a long one.
//
// The time to an error is from the harm to the last failure of a step in the client's log. When
// the harm was done is known but for the time that `ip` took to do it, a process of its own, which
// a loaded machine may let wait: so much is granted, and printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>

#include "tests/multiprocess/cluster_fixture.h"
#include "tests/multiprocess/network.h"
#include "tools/flags.h"

namespace monograph {
namespace {

constexpr int kPsHost = 0, kClientHost = 3, kHosts = 4;  // worker i is on host 1 + i
constexpr auto kMostToError = 3s;                        // from the harm to the step's error
constexpr auto kMostToEnd = 5s;                          // and to the end of the client
constexpr auto kMostToTrain = 5s;                        // from the next job's start to its steps
constexpr auto kLimit = 60s;                             // for whatever has to end well

struct Settings {
  int cuts = 2, partitions = 2, slow = 1, recoveries = 0;
  int first = 0;  // number of the first trial of each kind
  int64_t seed = 1;
  bool trusted_network = false;
};

struct Mode {
  const char* name;
  std::vector<std::string> flags;
  int clients = 1;      // one per worker, on its host; a single one is on a host of its own
  bool in_step = true;  // what one client loses, all lose; results have the same bits in each run
  bool ps = true;       // variables are on the parameter server
};

const std::vector<Mode>& Modes() {
  static const std::vector<Mode> modes = {
      {"in_graph", {"--replication=in_graph"}},
      {"in_graph replicated",
       {"--replication=in_graph", "--variable_update=replicated"},
       1,
       true,
       false},
      {"between_graph sync", {"--replication=between_graph", "--sync"}, 2},
      {"between_graph replicated",
       {"--replication=between_graph", "--variable_update=replicated"},
       2,
       true,
       false},
      {"between_graph async", {"--replication=between_graph"}, 2, false},
      {"hybrid", {"--replication=hybrid", "--replicas_per_worker=2"}, 2, false},
  };
  return modes;
}

using Clients = std::vector<std::unique_ptr<ChildProcess>>;

class Campaign {
 public:
  explicit Campaign(const Settings& settings) : settings_(settings) {}

  // Why this machine cannot; empty: run.
  std::string Start() {
    if (std::string why = network_.Make(); !why.empty()) return why;
    ChildProcess keygen({MonographPath(), "keygen", folder_.File("cluster.key")});
    if (!keygen.Wait(20s)) return "keygen hangs";
    for (const auto& [job, task, host] :
         {std::tuple("ps", 0, kPsHost), std::tuple("worker", 0, 1), std::tuple("worker", 1, 2)}) {
      if (!spec_.AddTask(job, task, Network::Address(host) + ":4700").ok()) return "no such task";
    }
    for (const auto& [job, task, host] :
         {std::tuple("ps", 0, kPsHost), std::tuple("worker", 0, 1), std::tuple("worker", 1, 2)}) {
      daemons_.push_back(std::make_unique<ChildProcess>(Network::On(
          host,
          {ExecutorPath(), "--cluster=" + spec_.ToJson(), "--job=" + std::string(job),
           "--task=" + std::to_string(task), "--cpu_devices=2",
           "--key_file=" + folder_.File("cluster.key"), "--trusted_network=" + TrustedNetwork()})));
    }
    loses_ = network_.SetLoss(kClientHost, 1).empty() && network_.SetLoss(kClientHost, 0).empty();
    if (!loses_) std::printf("this kernel has no packet loss to offer: links flap instead\n");
    return "";
  }

  int Run() {
    Trials(settings_.cuts, 1, [this](int i) { Cut(i); });
    Trials(settings_.partitions, 2, [this](int i) { Partition(i); });
    Trials(settings_.slow, 3, [this](int i) { Slow(i); });
    Trials(settings_.recoveries, 4, [this](int i) { Recover(i); });
    std::printf(
        "%d cuts, %d partitions, %d bad links, %d recoveries, from number %d, seed %lld, %s\n",
        settings_.cuts, settings_.partitions, settings_.slow, settings_.recoveries, settings_.first,
        static_cast<long long>(settings_.seed), settings_.trusted_network ? "UCX's TCP" : "TLS");
    Report("to an error", to_error_);
    Report("of which doing the harm took", harming_);
    Report("to a client's end", to_end_);
    Report("next job's first steps", next_job_);
    Report("bad link", slow_);
    Report("recovered after the heal", recovered_);
    std::printf("failures: %d\n", failures_);
    return failures_ == 0 ? 0 : 1;
  }

 private:
  std::string TrustedNetwork() const { return settings_.trusted_network ? Network::Trusted() : ""; }
  void Trials(int count, uint32_t kind, const std::function<void(int)>& trial) {
    for (int i = settings_.first; i < settings_.first + count && !ended_; ++i) {
      std::seed_seq seed{static_cast<uint32_t>(settings_.seed), kind, static_cast<uint32_t>(i)};
      random_.seed(seed);
      said_before_.clear();
      for (const auto& daemon : daemons_) said_before_.push_back(daemon->error().size());
      trial(i);
      for (const auto& daemon : daemons_) {
        if (daemon->Wait(0ms)) {
          Fail("a daemon ended", daemon->error());
          ended_ = true;
        }
      }
    }
  }
  static double Seconds(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  }
  static void Report(const char* what, std::vector<double> seconds) {
    if (seconds.empty()) return;
    std::sort(seconds.begin(), seconds.end());
    std::printf("%s: median %.2f s, worst %.2f s of %zu\n", what, seconds[seconds.size() / 2],
                seconds.back(), seconds.size());
  }
  void Fail(const std::string& what, const std::string& said) {
    ++failures_;
    std::printf("FAILED %s\n%s\n", what.c_str(), said.c_str());
    for (size_t i = 0; i < daemons_.size(); ++i)
      std::printf("daemon %zu:\n%s", i, daemons_[i]->error().substr(said_before_[i]).c_str());
    std::fflush(stdout);
  }
  void Must(const std::string& why) {
    if (!why.empty()) Fail("the network", why);
  }
  int Draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  std::chrono::milliseconds DrawTime(int from_ms, int to_ms) {
    return std::chrono::milliseconds(from_ms + Draw(to_ms - from_ms + 1));
  }

  static int HostOf(const Mode& mode, int client) {
    return mode.clients == 1 ? kClientHost : 1 + client;
  }
  Clients StartJob(const Mode& mode, const std::vector<std::string>& flags) const {
    Clients clients;
    for (int rank = 0; rank < mode.clients; ++rank) {
      std::vector<std::string> argv = {MG_MNIST_REPLICA,
                                       "--data_name=synthetic",
                                       "--fc=16",
                                       "--batch_size=20",
                                       "--num_warmup_batches=0",
                                       "--display_every=5",
                                       "--eval_batch_size=1000",
                                       "--image_type=uint8",
                                       "--log_level=debug",
                                       "--cluster=" + spec_.ToJson(),
                                       "--key_file=" + folder_.File("cluster.key"),
                                       "--trusted_network=" + TrustedNetwork()};
      argv.insert(argv.end(), mode.flags.begin(), mode.flags.end());
      if (mode.clients > 1) argv.push_back("--task_index=" + std::to_string(rank));
      argv.insert(argv.end(), flags.begin(), flags.end());
      clients.push_back(std::make_unique<ChildProcess>(Network::On(HostOf(mode, rank), argv)));
    }
    return clients;
  }
  static std::string Said(const Clients& clients) {
    std::string text;
    for (const auto& client : clients) text += client->output() + client->error() + "\n";
    return text;
  }
  // All end with 0.
  bool Succeed(const std::string& what, Clients& clients) {
    bool ok = true;
    for (const auto& client : clients) {
      const auto exit = client->Wait(kLimit);
      ok = ok && exit && !exit->signalled && exit->code == 0;
    }
    if (!ok) Fail(what, Said(clients));
    return ok;
  }
  bool Trains(const std::string& what, const Mode& mode, const Clients& clients) {
    for (const auto& client : clients) {
      // With --sync the chief alone prints.
      if (client != clients[0] && mode.in_step) break;
      if (client->WaitForOutput("tep", kLimit)) continue;
      Fail(what + ": does not train", Said(clients));
      return false;
    }
    return true;
  }
  // Does the harm; then the clients of `doomed` end with one error each, in time.
  void ExpectErrors(const std::string& what, Clients& clients, const std::vector<int>& doomed,
                    const std::function<void()>& harm) {
    const auto harmed = Clock::now();
    harm();
    const auto harming = Clock::now() - harmed;
    harming_.push_back(Seconds(harming));
    for (const int rank : doomed) {
      ChildProcess& client = *clients[static_cast<size_t>(rank)];
      const auto exit = client.Wait(std::chrono::ceil<std::chrono::milliseconds>(
          std::max<Clock::duration>(harmed + kLimit - Clock::now(), 0s)));
      const auto took = Clock::now() - harmed;
      to_end_.push_back(Seconds(took));
      const auto failed = client.LoggedAt(" failed: UNAVAILABLE");
      to_error_.push_back(failed ? Seconds(*failed - harmed) : to_end_.back());
      std::printf("  client %d has its error after %.2f s, ended after %.2f s, harm took %.2f s\n",
                  rank, to_error_.back(), to_end_.back(), harming_.back());
      if (!exit || took > kMostToEnd) {
        Fail(what + ": client " + std::to_string(rank) + " hangs", Said(clients));
      } else if (to_error_.back() > Seconds(kMostToError + harming)) {
        Fail(what + ": client " + std::to_string(rank) + " has its error late", Said(clients));
      } else if (exit->signalled || exit->code != 1 ||
                 client.error().find("UNAVAILABLE") == std::string::npos) {
        Fail(what + ": client " + std::to_string(rank) + " ends otherwise", Said(clients));
      }
    }
  }
  void NextJob(const std::string& what, const Mode& mode) {
    const auto begin = Clock::now();
    Clients clients = StartJob(mode, {"--num_batches=20"});
    clients[0]->WaitForOutput("tep", kLimit);
    const auto took = Clock::now() - begin;
    if (!Succeed(what + ": next job", clients)) return;
    next_job_.push_back(Seconds(took));
    std::printf("  next job: %.2f s\n", next_job_.back());
    if (took > kMostToTrain) Fail(what + ": next job starts late", Said(clients));
    const std::string lane = settings_.trusted_network ? "data plane: tcp(" : "data plane: tls 1.3";
    if (Said(clients).find(lane) == std::string::npos)
      Fail(what + ": the hosts are not joined by " + lane, Said(clients));
  }
  static std::vector<int> All(const Mode& mode) {
    std::vector<int> ranks;
    for (int rank = 0; rank < mode.clients; ++rank) ranks.push_back(rank);
    return ranks;
  }
  std::string Title(const char* kind, int number, const Mode& mode, const std::string& how) {
    std::string title =
        std::string(kind) + " " + std::to_string(number) + ", " + mode.name + ", " + how;
    std::printf("%s\n", title.c_str());
    std::fflush(stdout);
    return title;
  }

  // A host's cable is cut in a job until all have their errors.
  void Cut(int number) {
    const Mode& mode = Modes()[static_cast<size_t>(number) % Modes().size()];
    const int host = mode.ps ? Draw(3) : 1 + Draw(2);
    const std::string what = Title("cut", number, mode, "host " + std::to_string(host));
    Clients clients = StartJob(mode, {"--num_batches=1000000"});
    if (Trains(what, mode, clients)) {
      std::this_thread::sleep_for(DrawTime(0, 300));
      const bool all = mode.in_step || host == kPsHost;
      ExpectErrors(what, clients, all ? All(mode) : std::vector<int>{host - 1},
                   [&] { Must(network_.SetCable(host, false)); });
      std::this_thread::sleep_for(DrawTime(0, 1000));
      Must(network_.SetCable(host, true));
    }
    clients.clear();  // killed, if they go on
    NextJob(what, mode);
  }

  // Two hosts that exchange tensors do not reach each other; a single client reaches both.
  void Partition(int number) {
    const Mode& mode = Modes()[static_cast<size_t>(number) % Modes().size()];
    const int one = mode.ps ? kPsHost : 1, other = mode.ps ? 1 + Draw(2) : 2;
    const std::string what =
        Title("partition", number, mode,
              "hosts " + std::to_string(one) + " and " + std::to_string(other));
    Clients clients = StartJob(mode, {"--num_batches=1000000"});
    if (Trains(what, mode, clients)) {
      std::this_thread::sleep_for(DrawTime(0, 300));
      ExpectErrors(what, clients, mode.in_step ? All(mode) : std::vector<int>{other - 1}, [&] {
        Must(network_.SetIsolated(one, true));
        Must(network_.SetIsolated(other, true));
      });
      if (mode.clients == 1 &&
          clients[0]->error().find("the client reaches both") == std::string::npos)
        Fail(what + ": does not say what is cut", Said(clients));
      Must(network_.SetIsolated(one, false));
      Must(network_.SetIsolated(other, false));
    }
    clients.clear();
    NextJob(what, mode);
  }

  // The digest of the variables at the end of a short job.
  std::string Digest(const std::string& what, const Mode& mode, std::vector<std::string> flags,
                     const std::function<void(const Clients&)>& meanwhile) {
    const std::string result = folder_.File("result.json");
    flags.push_back("--result_file=" + result);
    Clients clients = StartJob(mode, flags);
    meanwhile(clients);
    if (!Succeed(what, clients)) return "";
    std::ifstream file(result);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t at = text.find("\"digest\"");
    if (at != std::string::npos) return text.substr(at, 90);
    Fail(what + ": no digest", text);
    return "";
  }
  void ExpectBits(const std::string& what, const Mode& mode, int batches,
                  const std::string& digest) {
    if (digest.empty() || !mode.in_step) return;
    std::string& expected = expected_[{mode.name, batches}];
    if (expected.empty()) {
      expected = Digest(what + ": undisturbed", mode, {"--num_batches=" + std::to_string(batches)},
                        [](const Clients&) {});
    }
    if (digest != expected) Fail(what + ": other bits", digest + " instead of " + expected);
  }

  // A link that is slow, that loses packets, or that goes away for moments.
  void Slow(int number) {
    const Mode& mode = Modes()[static_cast<size_t>(number) % Modes().size()];
    const int host = mode.ps ? Draw(3) : 1 + Draw(2);
    const int kind = Draw(3);
    const bool slow = kind == 0, loses = kind == 1 && loses_, flaps = !slow && !loses;
    const std::string rate = std::to_string(16 << Draw(4)) + "mbit";
    const int percent = 1 + Draw(10);
    const std::string what = Title("slow", number, mode,
                                   "host " + std::to_string(host) +
                                       (flaps  ? " flaps"
                                        : slow ? " " + rate
                                               : " loses " + std::to_string(percent) + " %"));
    constexpr int kBatches = 40;
    const TemporaryFolder dir;  // moments without the link may add up to a loss
    if (slow) Must(network_.SetRate(host, rate));
    if (loses) Must(network_.SetLoss(host, percent));
    const auto begin = Clock::now();
    const std::string digest = Digest(what, mode,
                                      {"--num_batches=" + std::to_string(kBatches),
                                       "--save_steps=20", "--train_dir=" + dir.path()},
                                      [&](const Clients& clients) {
                                        const auto until = Clock::now() + (flaps ? 8s : 0s);
                                        while (Clock::now() < until && !clients[0]->Wait(0ms)) {
                                          Must(network_.SetCable(host, false));
                                          std::this_thread::sleep_for(DrawTime(10, 80));
                                          Must(network_.SetCable(host, true));
                                          std::this_thread::sleep_for(DrawTime(200, 800));
                                        }
                                      });
    slow_.push_back(Seconds(Clock::now() - begin));
    std::printf("  %.2f s\n", slow_.back());
    if (slow) Must(network_.SetRate(host, ""));
    if (loses) Must(network_.SetLoss(host, 0));
    ExpectBits(what, mode, kBatches, digest);
  }

  // A cut that lasts longer than errors take has cost each client that keeps in step its session,
  // before it heals.
  void ExpectNoticed(const std::string& what, const Mode& mode, const Clients& clients,
                     Clock::duration length) {
    if (!mode.in_step || length < kMostToEnd) return;
    for (const auto& client : clients) {
      if (client->error().find("; the session is made anew") == std::string::npos)
        Fail(what + ": nobody noticed the cut", Said(clients));
    }
  }

  // A cut that heals by itself, in a job with checkpoints.
  void Recover(int number) {
    const Mode& mode = Modes()[static_cast<size_t>(number) % Modes().size()];
    const int host = mode.ps ? Draw(3) : 1 + Draw(2);
    const auto length = DrawTime(200, 6000);
    const std::string what =
        Title("recovery", number, mode,
              "host " + std::to_string(host) + " for " + std::to_string(length.count()) + " ms");
    constexpr int kBatches = 200;
    const TemporaryFolder dir;
    auto healed = Clock::now();
    const std::string digest = Digest(what, mode,
                                      {"--num_batches=" + std::to_string(kBatches),
                                       "--save_steps=20", "--train_dir=" + dir.path()},
                                      [&](const Clients& clients) {
                                        if (!Trains(what, mode, clients)) return;
                                        Must(network_.SetCable(host, false));
                                        std::this_thread::sleep_for(length);
                                        ExpectNoticed(what, mode, clients, length);
                                        Must(network_.SetCable(host, true));
                                        healed = Clock::now();
                                      });
    recovered_.push_back(Seconds(Clock::now() - healed));
    std::printf("  %.2f s after the heal\n", recovered_.back());
    ExpectBits(what, mode, kBatches, digest);
  }

  const Settings settings_;
  std::mt19937_64 random_;
  Network network_{kHosts};
  TemporaryFolder folder_;
  ClusterSpec spec_;
  Clients daemons_;
  std::map<std::pair<std::string, int>, std::string> expected_;  // by mode and batches
  std::vector<size_t> said_before_;                              // by daemon: at the trial's begin
  std::vector<double> to_error_, harming_, to_end_, next_job_, slow_, recovered_;  // seconds
  bool loses_ = false;  // links can lose packets here
  bool ended_ = false;  // a daemon did
  int failures_ = 0;
};

int Main(int argc, char** argv) {
  Settings settings;
  Flags flags(
      "links_campaign",
      "Cuts, partial partitions and bad links between training jobs on several hosts, which "
      "are network namespaces of this machine; needs root. Ends with 1 if a job hung, a "
      "next one failed, or a recovered one had other bits.");
  flags.Add("cuts", &settings.cuts, "cables cut until all have their errors", 0, 1000000);
  flags.Add("partitions", &settings.partitions, "pairs of hosts that do not reach each other", 0,
            1000000);
  flags.Add("slow", &settings.slow, "links that are slow, lose packets or flap", 0, 1000000);
  flags.Add("recoveries", &settings.recoveries, "cuts in jobs with checkpoints", 0, 1000000);
  flags.Add("first", &settings.first, "number of the first trial of each kind", 0, 1000000);
  flags.Add("seed", &settings.seed, "of all that is drawn");
  flags.Add("trusted_network", &settings.trusted_network,
            "tasks meet by UCX's TCP in a trusted network, instead of TLS");
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  Campaign campaign(settings);
  if (const std::string why = campaign.Start(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  return campaign.Run();
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
