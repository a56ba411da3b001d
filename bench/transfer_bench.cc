// A tensor from daemon to daemon, and as a feed and a fetch, against bare UCX rendezvous between
// processes, all memory on huge pages. Ours counts the whole step: the client's message to both
// daemons, reading the variable, the transfer and both answers. Daemon 1 reads tensors where they
// lie; "copied": the same with --lanes=^reference; "in place" for the client, too. With "TLS" the
// same between daemons that meet by TLS, as on two hosts, against TensorFlow's gRPC, which sends
// plain text.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "bench/daemons.h"
#include "bench/harness.h"
#include "bench/raw_ucx.h"
#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/input/input.h"
#include "ops/variable/variable.h"
#include "tests/temporary_folder.h"

namespace monograph::bench {
namespace {

constexpr int64_t kMiB = 1 << 20;

struct Case {
  int64_t bytes;
  Operation arrived;    // on daemon 1, from daemon 0
  Output fed;           // what the client feeds
  Operation fed_there;  // on daemon 0
  Output held;          // on daemon 0, to be fetched
};

constexpr int64_t kSmall = 64 << 10;
constexpr int64_t kSizes[] = {kSmall, 4 * kMiB, 64 * kMiB};

// Two daemons that hold a tensor of each size on the first one.
class Tensors {
 public:
  Tensors(Daemons& daemons, const SessionOptions& options) : graph_(NewGraph()) {
    const Scope root(&graph_), source = root.WithDevice(daemons.device(0)),
                               target = root.WithDevice(daemons.device(1));
    std::vector<Operation> init;
    for (const int64_t bytes : kSizes) {
      const Shape shape{bytes / 4};
      const Output handle = VarHandle(source, DT_FLOAT, shape, "", "held_" + std::to_string(bytes));
      const Output ones = Fill(source, IntsConst(source, {shape.dim(0)}), Const(source, 1.0f));
      init.push_back(AssignVariable(source, handle, ones));
      Case c{.bytes = bytes, .held = ReadVariable(source, handle)};
      c.arrived = NoOp(target.WithControlDependencies({Identity(target, c.held)}));
      c.fed = Placeholder(root, DT_FLOAT, shape);
      c.fed_there = NoOp(source.WithControlDependencies({Identity(source, c.fed)}));
      cases_.push_back(c);
    }
    Check(root.status());
    session_ = Check(Session::Connect(daemons.cluster(), graph_, options));
    Check(session_->Run({}, {}, init).status());
  }
  const std::vector<Case>& cases() const { return cases_; }
  Session& session() { return *session_; }
  // Bytes per second of so many calls.
  double Rate(const Case& c, const Callable& call, const std::vector<Tensor>& feeds) {
    const long count = 256 * kMiB / c.bytes;
    return static_cast<double>(c.bytes) / Seconds(call, feeds, count);
  }
  // Of a call.
  double Seconds(const Callable& call, const std::vector<Tensor>& feeds, long count) {
    const double start = Now();
    for (long i = 0; i < count; ++i) Check(session_->RunCallable(call, feeds).status());
    return (Now() - start) / static_cast<double>(count);
  }
  // Seconds of a step that brings a tensor of so many bytes from daemon 0 to daemon 1.
  double SecondsOf(int64_t bytes) {
    const auto found = std::find_if(cases_.begin(), cases_.end(),
                                    [bytes](const Case& c) { return c.bytes == bytes; });
    return Seconds(Check(session_->MakeCallable({}, {}, {found->arrived})), {}, 100);
  }

 private:
  Graph graph_;
  std::vector<Case> cases_;
  std::unique_ptr<Session> session_;
};

int Main(int argc, char** argv) {
  const Args args = Args::Parse(
      argc, argv,
      "transfer_bench: a tensor from daemon to daemon, as a feed and as a fetch, against bare "
      "UCX rendezvous on huge pages");
  SetLogLevel(LogLevel::kWarning);
  RawServers raw(1, static_cast<size_t>(std::end(kSizes)[-1]));
  auto tensorflow =
      Peer::Start(args.tensorflow, "tf_transfer.py", {"--sizes=4,64", "--seconds=0.15"});
  auto ray = Peer::Start(args.ray, "ray_transfer.py", {"--sizes=4,64", "--seconds=0.15"});
  if (tensorflow && !tensorflow->WaitReady()) tensorflow.reset();
  if (ray && !ray->WaitReady()) ray.reset();

  const TemporaryFolder folder;
  const std::string key_file = folder.File("cluster.key");
  const control::Key key = Check(control::GenerateKey());
  Check(control::WriteKeyFile(key_file, key));
  Daemons daemons(2), copying(2), apart(2);
  daemons.Start();
  copying.Start({"--lanes=^reference"});
  apart.Start({"--lanes=tls", "--key_file=" + key_file});
  raw.Connect();
  Tensors tensors(daemons, {}), copied(copying, {});
  SessionOptions with_client;
  with_client.transport.lanes = "posix,cma,reference";
  Tensors in_place(daemons, with_client);
  SessionOptions by_tls;
  by_tls.key = key;
  by_tls.transport.lanes = "tls";
  Tensors tls(apart, by_tls);

  Report report(args);
  const auto compare = [&](Tensors& of, const Case& c, const std::string& name,
                           const Callable& call, const std::vector<Tensor>& feeds,
                           std::optional<Goal> goal, bool ray_has_it) {
    const auto bytes = static_cast<size_t>(c.bytes);
    const Side ours = Side::Of("ours", [&] { return of.Rate(c, call, feeds) / 1e9; });
    std::vector<Side> references = {Side::Of(
        "raw UCX rendezvous", [&] { return raw.Transfer(bytes, 1, 256 * kMiB / c.bytes) / 1e9; })};
    if (tensorflow) references.push_back(tensorflow->AsSide("TensorFlow", name, 4));
    if (ray && ray_has_it) {
      references.push_back(ray->AsSide("Ray Compiled Graph", name, 4));
      references.push_back(ray->AsSide("Ray, view in place", name + " view", 4));
    }
    report.Compare("transfer", "GB/s", {{name, goal}}, ours, references, args.Repetitions(40));
  };
  if (args.Wants("64 MiB in a step")) {
    report.Compare("transfer", "us", {{"64 MiB in a step", Goal{2, Goal::kMax}}},
                   Side::Of("ours", [&] { return tensors.SecondsOf(64 * kMiB) * 1e6; }),
                   {Side::Of("64 KiB", [&] { return tensors.SecondsOf(kSmall) * 1e6; }),
                    Side::Of("64 MiB, copied", [&] { return copied.SecondsOf(64 * kMiB) * 1e6; })},
                   args.Repetitions(20));
  }
  const auto client_moves = [&](Tensors& of, const Case& c, const std::string& size) {
    if (args.Wants("feed " + size)) {
      Tensor fed = Check(Tensor::Allocate(DT_FLOAT, Shape{c.bytes / 4}));
      std::fill_n(fed.data<float>(), fed.elements(), 1.0f);
      compare(of, c, "feed " + size, Check(of.session().MakeCallable({c.fed}, {}, {c.fed_there})),
              {fed}, {}, false);
    }
    if (args.Wants("fetch " + size)) {
      compare(of, c, "fetch " + size, Check(of.session().MakeCallable({}, {c.held})), {}, {},
              false);
    }
  };
  for (const Case& c : tensors.cases()) {
    if (c.bytes == kSmall) continue;
    const std::string size = std::to_string(c.bytes / kMiB) + " MiB";
    if (args.Wants(size)) {
      compare(tensors, c, size, Check(tensors.session().MakeCallable({}, {}, {c.arrived})), {},
              Goal{0.6, Goal::kMin}, true);
    }
    client_moves(tensors, c, size);
  }
  for (const Case& c : in_place.cases()) {
    if (c.bytes != kSmall)
      client_moves(in_place, c, std::to_string(c.bytes / kMiB) + " MiB in place");
  }
  for (const Case& c : tls.cases()) {
    const std::string size = std::to_string(c.bytes / kMiB) + " MiB", name = size + ", TLS";
    if (c.bytes == kSmall || !tensorflow || !args.Wants(name)) continue;
    const Callable call = Check(tls.session().MakeCallable({}, {}, {c.arrived}));
    report.Compare("transfer", "GB/s", {{name, Goal{2, Goal::kMin}}},
                   Side::Of("ours", [&] { return tls.Rate(c, call, {}) / 1e9; }),
                   {tensorflow->AsSide("TensorFlow", size, 4)}, args.Repetitions(40));
  }
  Check(tensors.session().Close());
  Check(copied.session().Close());
  Check(in_place.session().Close());
  Check(tls.session().Close());
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
