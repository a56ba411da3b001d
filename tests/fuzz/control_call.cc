// What a client that has the cluster's key may call at a daemon, one connection for each input.
// Bytes: calls, each
//   method:u8 body_bytes:u16 body
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/codec.h"
#include "base/mutex.h"
#include "executor/kernel.h"
#include "executor/worker/methods.h"
#include "tests/fuzz/known_ops.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {
namespace {

constexpr char kCalledTask[] = "/job:worker/replica:0/task:0";
constexpr const char* kMethods[] = {
    "Status",          "CreateSession", "ConnectSession", "CloseSession", "RegisterGraph",
    "DeregisterGraph", "DropPeer",      "Reset",          "TakeTrace",    "ReconnectPeers"};

// A data plane on which nothing comes, and what is sent has left when the next call begins: nothing
// is called from inside Send.
class Silence : public Transport {
 public:
  std::string address() const override { return "task"; }
  Result<PeerId> Connect(std::string_view, std::string_view) override { return peers_++; }
  void Disconnect(PeerId) override {}
  std::string Describe(PeerId) const override { return "silence"; }
  void Send(PeerId peer, std::string_view header, Payload, Done done) override {
    MG_CHECK(peer < peers_ && header.size() <= kMaxHeaderBytes);
    MutexLock lock(mutex_);
    sent_.push_back(std::move(done));
  }
  bool DriveUntil(const std::function<bool()>& ready,
                  std::chrono::steady_clock::time_point) override {
    return ready();
  }
  void Wake() override {}
  TransportStats stats() const override { return {}; }
  void Close() override { EndSends(); }
  void Join() override { EndSends(); }
  void EndSends() {
    MutexLock lock(mutex_);
    const auto sent = std::exchange(sent_, {});
    lock.Unlock();
    for (const Done& done : sent) {
      if (done) done(Status());
    }
  }

 private:
  PeerId peers_ = 0;
  Mutex mutex_;
  std::vector<Done> sent_ MG_GUARDED_BY(mutex_);
};

Worker* MakeCalledWorker() {
  static const KernelRegistry kernels;  // those of _Send and _Recv need none
  WorkerOptions options;
  options.task = DeviceName::Parse(kCalledTask).value();
  options.ops = &KnownOps();
  options.kernels = &kernels;
  options.inter_op_parallelism_threads = options.intra_op_parallelism_threads = 1;
  options.parts_deadline = {};
  options.make_transport = [](MessageHandler*) -> Result<std::unique_ptr<Transport>> {
    return std::unique_ptr<Transport>(std::make_unique<Silence>());
  };
  return Worker::Create(std::move(options)).value().release();
}

}  // namespace

void control_call(std::string_view bytes) {
  static Worker* const worker = MakeCalledWorker();
  ControlMethods methods(worker, &KnownOps(), "{}");
  const auto map = methods.Map();
  MG_CHECK(map.size() == std::size(kMethods));
  control::ConnectionInfo info;
  info.id = 1;
  const auto connection = std::make_shared<const control::ConnectionInfo>(info);
  Decoder in(bytes);
  while (!in.rest().empty()) {
    const auto method = in.Get<uint8_t>();
    const auto body_bytes = in.Get<uint16_t>();
    const std::string_view body = in.rest().substr(0, body_bytes);
    in = Decoder(in.rest().substr(body.size()));
    const char* const name = kMethods[method % std::size(kMethods)];
    int replies = 0;
    map.at(name).handler({.connection = connection, .method = name, .deadline = {}},
                         std::string(body), [&](const Result<std::string>& answer) {
                           ++replies;
                           MG_CHECK(answer.ok() || !answer.status().message().empty());
                         });
    MG_CHECK(replies == 1);
  }
  methods.ClientGone(info, Cancelled("the server stops"));
  methods.Join();
  MG_CHECK(worker->stats().sessions == 0 && worker->stats().graphs == 0);
}

}  // namespace monograph::fuzz
