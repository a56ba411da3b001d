// A checkpoint of 256 MiB of variables, half of them on each of two daemons, saved and restored by
// the daemons (SaverOptions::sharded), against plain write() and fsync (read()) of as many bytes by
// two threads, a file each, and against a Saver whose values pass through the client. All remove
// the files of the save before. What of it is the client's: its processor time, and the bytes of
// its messages.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/log.h"
#include "bench/daemons.h"
#include "bench/harness.h"
#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/variable/variable.h"
#include "tools/cluster_status.h"
#include "train/saver.h"

namespace monograph::bench {
namespace {

constexpr int kTasks = 2, kVariables = 32;  // of each task
constexpr size_t kVariableBytes = size_t{4} << 20;
constexpr size_t kFileBytes = kVariables * kVariableBytes;

double ProcessorSeconds() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// How long it takes, and how much processor time of this process.
template <typename Work>
std::vector<double> Timed(Work work) {
  const double start = Now(), used = ProcessorSeconds();
  work();
  return {Now() - start, ProcessorSeconds() - used};
}

// The bytes of one task, as plain files.
class PlainFile {
 public:
  explicit PlainFile(std::string path) : path_(std::move(path)), bytes_(kFileBytes, 'x') {}

  void Write() {
    const std::string path = path_ + (odd_ ? "1" : "0"), before = path_ + (odd_ ? "0" : "1");
    odd_ = !odd_;
    const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    for (size_t at = 0; at < kFileBytes;) {
      const ssize_t written = write(file.get(), bytes_.data() + at, kFileBytes - at);
      if (written <= 0) Die("cannot write " + path);
      at += static_cast<size_t>(written);
    }
    if (fsync(file.get()) != 0) Die("cannot sync " + path);
    unlink(before.c_str());
  }
  void Read() {
    const std::string path = path_ + (odd_ ? "0" : "1");
    const Descriptor file(open(path.c_str(), O_RDONLY));
    for (size_t at = 0; at < kFileBytes;) {
      const ssize_t got = read(file.get(), bytes_.data() + at, kFileBytes - at);
      if (got <= 0) Die("cannot read " + path);
      at += static_cast<size_t>(got);
    }
  }

 private:
  const std::string path_;
  std::vector<char> bytes_;
  bool odd_ = false;
};

// All files at once.
void OnThreads(std::vector<std::unique_ptr<PlainFile>>* files, void (PlainFile::*work)()) {
  std::vector<std::thread> threads;
  for (const auto& file : *files) threads.emplace_back([&] { ((*file).*work)(); });
  for (std::thread& thread : threads) thread.join();
}

// The messages of the daemons, which send none to each other, in MB.
double MegabytesMoved(const ClusterSpec& cluster) {
  uint64_t bytes = 0;
  for (const ClusterTask& task : AskCluster(cluster, std::nullopt, std::chrono::seconds(5))) {
    Check(task.status.status());
    bytes += task.status->bytes_sent + task.status->bytes_received;
  }
  return 1e-6 * static_cast<double>(bytes);
}

// A saver, and where it saves.
struct Kind {
  Saver saver;
  std::string path;
  std::string latest = {};
  int64_t saves = 0;

  void Save(Session* session) { latest = Check(saver.Save(session, path, ++saves)); }
  void Restore(Session* session) { Check(saver.Restore(session, latest)); }
};

int Main(int argc, char** argv) {
  const Args args = Args::Parse(argc, argv,
                                "saver_bench: checkpoints of 256 MiB on two daemons, written by "
                                "the daemons, by the client, and as plain files");
  SetLogLevel(LogLevel::kWarning);
  char folder[] = "/tmp/monograph-bench-XXXXXX";
  if (mkdtemp(folder) == nullptr) Die("cannot make a temporary folder");
  const std::string path = folder;

  Daemons daemons(kTasks);
  daemons.Start();
  Graph graph = NewGraph();
  const Scope root(&graph);
  std::vector<Operation> init;
  for (int task = 0; task < kTasks; ++task) {
    const Scope place = root.WithDevice(daemons.device(task));
    for (int i = 0; i < kVariables; ++i) {
      const Shape shape{static_cast<int64_t>(kVariableBytes / sizeof(float))};
      const Output handle =
          VarHandle(place, DT_FLOAT, shape, "", "v" + std::to_string(task * kVariables + i));
      init.push_back(AssignVariable(
          place, handle, Fill(place, IntsConst(place, shape.dims()), Const(place, 1.0f))));
    }
  }
  Kind sharded{Saver(root, {.max_to_keep = 1, .sharded = true}), path + "/sharded/m"};
  Kind client{Saver(root, {.max_to_keep = 1}), path + "/client/m"};
  Check(root.status());
  const std::unique_ptr<Session> session = Check(Session::Connect(daemons.cluster(), graph));
  Check(session->Run({}, {}, init).status());
  std::vector<std::unique_ptr<PlainFile>> files;
  for (int task = 0; task < kTasks; ++task)
    files.push_back(std::make_unique<PlainFile>(path + "/plain" + std::to_string(task)));

  Report report(args);
  const auto compare = [&](const std::string& what, const std::string& plain,
                           void (Kind::*work)(Session*), void (PlainFile::*least)()) {
    if (!args.Wants(what)) return;
    const auto side = [&](Kind* kind) {
      return [&, kind] { return std::optional(Timed([&] { (kind->*work)(session.get()); })); };
    };
    report.Compare(
        "saver", "s", {{what}, {what + ", the client's processor time"}}, {"ours", side(&sharded)},
        {{plain, [&] { return std::optional(Timed([&] { OnThreads(&files, least); })); }},
         {"through the client", side(&client)}},
        args.Repetitions(9));
    const auto moved = [&](Kind* kind) {
      const double before = MegabytesMoved(daemons.cluster());
      (kind->*work)(session.get());
      return MegabytesMoved(daemons.cluster()) - before;
    };
    report.Compare("saver", "MB", {{what + ", the client's messages"}},
                   Side::Of("ours", [&] { return moved(&sharded); }),
                   {Side::Of("through the client", [&] { return moved(&client); })}, 1);
  };
  compare("save 256 MiB", "write() and fsync", &Kind::Save, &PlainFile::Write);
  compare("restore 256 MiB", "read()", &Kind::Restore, &PlainFile::Read);
  Check(session->Close());
  std::filesystem::remove_all(path);
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
