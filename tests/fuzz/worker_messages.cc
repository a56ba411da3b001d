// What a peer that has the cluster's key may say to a task on the data plane: messages of a session
// with two peers, whose graph sends back what it gets. Bytes: messages, each
//   mark:u8 header_bytes:u8 payload_bytes:u8 header payload
// mark: 1 the header's session and incarnation are the right ones | 2 it comes as UCX's second
// active message | 4 the payload never comes | 8 what the task has sent so far has arrived | 16 the
// payload is half there when the session ends
#include <cstring>
#include <utility>
#include <vector>

#include "base/codec.h"
#include "base/mutex.h"
#include "base/pool_allocator.h"
#include "executor/kernel.h"
#include "executor/worker/worker.h"
#include "graph/scope.h"
#include "tests/fuzz/targets.h"
#include "transport/ucx/ucx_header.h"

namespace monograph::fuzz {
namespace {

constexpr char kTask[] = "/job:worker/replica:0/task:0";
constexpr char kDevice[] = "/job:worker/replica:0/task:0/device:CPU:0";
constexpr char kClientDevice[] = "/job:client/replica:0/task:0/device:CPU:0";
constexpr char kClient[] = "/job:client/replica:0/task:0";
constexpr char kOther[] = "/job:worker/replica:0/task:1";
constexpr uint64_t kSession = 7;

// The task's end of the data plane. It keeps what is to be called later: nothing is called from
// inside Send.
class Wire : public Transport {
 public:
  static inline Wire* current = nullptr;

  explicit Wire(MessageHandler* to) : handler(to) { current = this; }

  std::string address() const override { return "task"; }
  Result<PeerId> Connect(std::string_view, std::string_view) override { return peers_++; }
  void Disconnect(PeerId) override {}
  std::string Describe(PeerId) const override { return "wire"; }
  void Send(PeerId peer, std::string_view header, Payload payload, Done done) override {
    MG_CHECK(peer < peers_ && header.size() <= kMaxHeaderBytes);
    MutexLock lock(mutex_);
    sent_.emplace_back(std::move(payload), std::move(done));
  }
  bool DriveUntil(const std::function<bool()>& ready,
                  std::chrono::steady_clock::time_point) override {
    return ready();
  }
  void Wake() override {}
  TransportStats stats() const override { return {}; }
  void Close() override {
    const Status closed = Cancelled("the transport is closed");
    EndSends(closed);
    for (const PayloadSink& sink : std::exchange(halves, {})) sink.done(closed);
  }
  void Join() override { EndSends(Cancelled("the transport is closed")); }

  void EndSends(const Status& status) {
    MutexLock lock(mutex_);
    const auto sent = std::exchange(sent_, {});
    lock.Unlock();
    for (const auto& [payload, done] : sent) {
      if (done) done(status);
    }
  }

  MessageHandler* const handler;
  std::vector<PayloadSink> halves;  // what has only half arrived

 private:
  PeerId peers_ = 0;
  Mutex mutex_;
  std::vector<std::pair<Payload, Done>> sent_ MG_GUARDED_BY(mutex_);
};

const OpRegistry& Ops() {
  static const OpRegistry ops;
  return ops;
}

// Edge 0, two floats, and edge 1, strings of any shape, come from the client and go back.
Graph MakeEcho() {
  Graph graph(&Ops());
  const Scope scope = Scope(&graph).WithDevice(kDevice);
  for (const int64_t edge : {0, 1}) {
    const DType dtype = edge == 0 ? DT_FLOAT : DT_STRING;
    const Output x = OpBuilder(scope, "_Recv")
                         .Attr("T", AttrValue(dtype))
                         .Attr("edge_id", AttrValue(edge))
                         .Attr("send_device", kClientDevice)
                         .Attr("recv_device", kDevice)
                         .Attr("tensor_name", "x")
                         .Attr("shape", AttrValue(edge == 0 ? PartialShape({2}) : PartialShape()))
                         .BuildOutput();
    OpBuilder(scope, "_Send")
        .Input(x)
        .Attr("T", AttrValue(dtype))
        .Attr("N", 1)
        .Attr("edge_id", AttrValue(edge + 2))
        .Attr("send_device", kDevice)
        .Attr("recv_device", kClientDevice)
        .Attr("tensor_name", "y")
        .Build();
  }
  MG_CHECK(scope.ok());
  return graph;
}

// A copy: to check the nodes anew for each session would take longer than all that follows.
Graph Echo() {
  static const Graph made = MakeEcho();
  Graph graph(&Ops());
  for (NodeId id = 0; id < made.num_nodes(); ++id)
    graph.CopyNode(made, id, made.name(id), made.inputs(id), made.control_inputs(id));
  return graph;
}

Worker* MakeWorker() {
  static const KernelRegistry kernels;
  WorkerOptions options;
  options.task = DeviceName::Parse(kTask).value();
  options.ops = &Ops();
  options.kernels = &kernels;
  options.inter_op_parallelism_threads = options.intra_op_parallelism_threads = 1;
  options.parts_deadline = {};  // parts of collectives that have not come never do
  options.make_transport = [](MessageHandler* handler) -> Result<std::unique_ptr<Transport>> {
    return std::unique_ptr<Transport>(std::make_unique<Wire>(handler));
  };
  return Worker::Create(std::move(options)).value().release();
}

void Deliver(uint8_t mark, std::string header, std::string_view payload, uint64_t incarnation) {
  MessageHandler* const handler = Wire::current->handler;
  if ((mark & 1) != 0 && header.size() >= 24) {
    std::memcpy(header.data() + 8, &kSession, sizeof kSession);
    std::memcpy(header.data() + 16, &incarnation, sizeof incarnation);
  }
  if (payload.empty()) return handler->OnDelivered(header, {});
  std::string_view text = header;
  if ((mark & 2) != 0) {
    const auto read = DecodeUcxHeader(header);
    if (!read) return;
    text = read->text;
  }
  PayloadSink sink = handler->OnMessage(text, payload.size());
  if (sink.data == nullptr) return;
  if ((mark & 16) != 0 && sink.done) {
    std::memcpy(sink.data, payload.data(), payload.size() / 2);
    Wire::current->halves.push_back(std::move(sink));
    return;
  }
  if ((mark & 4) == 0) std::memcpy(sink.data, payload.data(), payload.size());
  if (sink.done) sink.done((mark & 4) == 0 ? Status() : Unavailable("the peer is gone"));
}

}  // namespace

void worker_messages(std::string_view bytes) {
  static const int64_t before = HostPool().bytes_in_use();
  static Worker* worker = MakeWorker();
  MG_CHECK(worker->CreateSession(kSession).ok());
  MG_CHECK(worker->ConnectSession(kSession, {{kClient, "client", 11}, {kOther, "other", 12}}, 0, 0)
               .ok());
  MG_CHECK(worker->RegisterGraph(kSession, Echo()).ok());
  Decoder in(bytes);
  while (!in.rest().empty()) {
    const auto mark = in.Get<uint8_t>(), header_bytes = in.Get<uint8_t>(),
               payload_bytes = in.Get<uint8_t>();
    const std::string_view header = in.rest().substr(0, header_bytes);
    const std::string_view payload = in.rest().substr(header.size(), payload_bytes);
    in = Decoder(in.rest().substr(header.size() + payload.size()));
    Deliver(mark, std::string(header), payload, worker->incarnation());
    if ((mark & 8) != 0) Wire::current->EndSends(Status());
  }
  Wire::current->EndSends(Status());  // CloseSession would wait for them
  MG_CHECK(worker->CloseSession(kSession).ok());
  MG_CHECK(worker->stats().running_steps == 0 && worker->stats().messages_leaving == 0);
  // Parts of groups that may still form are kept for up to an hour, and longer than the session.
  // The next input is to find none, and the worker's end leaves nothing.
  if (HostPool().bytes_in_use() == before) return;
  delete worker;
  MG_CHECK(HostPool().bytes_in_use() == before);
  worker = MakeWorker();
}

}  // namespace monograph::fuzz
