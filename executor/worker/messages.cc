// The data plane of a worker. Leaving: a feed (Worker::SendTensor) or the tensor of a _Send
// (OnSend) goes to its edge's peer, or to this process without a message. Arriving: the transport
// asks OnMessage for memory for a payload, or hands OnDelivered a whole message; both check the
// header first (Receive). A tensor goes to the client here if it fetches it, else to its step, or
// into the step's slot until its run-step has come (Accept, Deliver). A tensor that comes in parts
// is put together in the step's slot (OnPart); where a GPU alone reads it each part is copied there
// as it comes. What cannot be used is counted and dropped.
#include <cstring>

#include "executor/gpu/copies.h"
#include "executor/gpu/gpu_device.h"
#include "executor/step/dead_tensor.h"
#include "executor/worker/impl.h"

namespace monograph {

static_assert(kTensorPart == kTransferPart);

// ---- leaving

void Worker::SendTensor(uint64_t id, int peer, uint64_t step, int32_t edge, Tensor tensor) {
  std::shared_ptr<WorkerSession> session = impl_->FindSession(id);
  if (session == nullptr) return;
  if (peer == kSelf) {
    impl_->Deliver(*session, step, edge, std::move(tensor), 0);
  } else {
    impl_->SendTensor(*session, peer, step, edge, tensor, 0);
  }
}

void Worker::SendRunStep(uint64_t id, int peer, uint32_t handle, const StepIds& steps, bool trace,
                         bool caller_computes) {
  std::shared_ptr<WorkerSession> session = impl_->FindSession(id);
  if (session == nullptr) return;
  if (!session->peers.empty()) impl_->WakeWatch();
  if (peer == kSelf) {
    impl_->RunStep(session, {.handle = handle, .step = steps.first, .row = steps, .trace = trace},
                   caller_computes);
    return;
  }
  StepMessage message;
  message.kind = StepMessageKind::kRunStep;
  message.flags = trace ? kTraceFlag : 0;
  message.id = handle;
  message.step = steps.first;
  message.count = steps.count();
  message.stride = steps.stride;
  impl_->SendMessage(*session, peer, std::move(message));
}

void Worker::SendAbortStep(uint64_t id, int peer, uint64_t step, const Status& status) {
  std::shared_ptr<WorkerSession> session = impl_->FindSession(id);
  if (session == nullptr) return;
  if (peer == kSelf) {
    impl_->AbortHere(*session, step, status);
    return;
  }
  StepMessage message;
  message.kind = StepMessageKind::kAbortStep;
  message.id = kFromClient;
  message.step = step;
  message.status = status;
  impl_->SendMessage(*session, peer, std::move(message));
}

void RegisteredGraph::OnSend(uint64_t step, const EdgeInfo& edge, Tensor tensor,
                             uint64_t iteration) {
  const int peer = edge_peer[static_cast<size_t>(edge.id)];
  if (peer == kSelf) {
    worker->Accept(*session, step, edge.id, std::move(tensor), iteration);
  } else if (!edge.in_parts || tensor.bytes() < kLeastInParts) {  // else its copy has sent it
    const bool on_gpu =
        edge.gpu != nullptr && edge.gpu->gpu()->memory().Contains(std::as_const(tensor).raw());
    worker->SendTensor(*session, peer, step, edge.id, tensor, iteration, on_gpu);
  }
}

void Worker::Impl::SendTensor(WorkerSession& session, int peer, uint64_t step, int32_t edge,
                              const Tensor& tensor, uint64_t iteration, bool on_gpu) {
  StepMessage message;
  message.iteration = iteration;
  message.id = static_cast<uint32_t>(edge);
  message.step = step;
  SendMessage(session, peer, std::move(message), &tensor, on_gpu);
}

void Worker::Impl::SendPart(WorkerSession& session, int peer, uint64_t step, int32_t edge,
                            const Tensor& tensor, size_t offset) {
  StepMessage message;
  message.flags = kPartFlag;
  message.offset = offset;
  message.id = static_cast<uint32_t>(edge);
  message.step = step;
  SendMessage(session, peer, std::move(message), &tensor);
}

void Worker::Impl::SendMessage(WorkerSession& session, int peer, StepMessage message,
                               const Tensor* tensor, bool on_gpu) {
  const SessionPeer& target = session.peers[static_cast<size_t>(peer)];
  message.session = session.id;
  message.incarnation = target.incarnation;
  const uint64_t step = message.step;
  char header[kMaxHeaderBytes];
  Payload payload;
  const size_t length = tensor == nullptr
                            ? EncodeStepMessage(message, header)
                            : EncodeTensor(std::move(message), *tensor, header, &payload);
  payload.on_gpu = on_gpu;
  if (payload.bytes == 0) {  // the transport takes a header at once: nothing to await
    session.transport->Send(target.id, {header, length}, {}, nullptr);
    return;
  }
  sending_.fetch_add(1, std::memory_order_relaxed);
  Departure* departure = departures_.Take();
  departure->session = session.shared_from_this();
  departure->step = step;
  departure->peer = peer;
  session.leaving[static_cast<size_t>(peer)].fetch_add(1, std::memory_order_relaxed);
  session.transport->Send(target.id, {header, length}, std::move(payload),
                          [this, departure](const Status& status) { Departed(departure, status); });
}

void Worker::Impl::Departed(Departure* departure, const Status& status) {
  const std::shared_ptr<WorkerSession> session = std::move(departure->session);
  const uint64_t step = departure->step;
  const auto peer = static_cast<size_t>(departure->peer);
  session->leaving[peer].fetch_sub(1, std::memory_order_relaxed);
  departures_.Give(departure);
  sending_.fetch_sub(1, std::memory_order_relaxed);
  if (status.ok() || FindSession(session->id) != session) return;
  const std::string what = "sending from " + task_ + " to " + session->peers[peer].task;
  FailHere(*session, step, status.WithContext(what).AsDerived());
}

Status Worker::Impl::SendCollective(uint64_t id, std::string_view task, StepMessage message,
                                    Payload payload, Done done) {
  const std::shared_ptr<WorkerSession> session = FindSession(id);
  if (session == nullptr) return Unavailable("the session is closed at " + task_);
  const SessionPeer* peer = session->PeerOf(task);
  if (peer == nullptr) return Unavailable(std::string(task) + " is not in the session of " + task_);
  message.session = id;
  message.incarnation = peer->incarnation;
  char header[kMaxHeaderBytes];
  const size_t length = EncodeStepMessage(message, header);
  if (payload.bytes == 0) {
    session->transport->Send(peer->id, {header, length}, {}, std::move(done));
    return Status();
  }
  sending_.fetch_add(1, std::memory_order_relaxed);
  {
    MutexLock lock(session->mutex);
    ++session->collective_sends;
  }
  std::atomic<int>& leaving = session->leaving[static_cast<size_t>(session->IndexOf(*peer))];
  leaving.fetch_add(1, std::memory_order_relaxed);
  session->transport->Send(peer->id, {header, length}, std::move(payload),
                           [this, session, &leaving, done = std::move(done)](const Status& status) {
                             leaving.fetch_sub(1, std::memory_order_relaxed);
                             sending_.fetch_sub(1, std::memory_order_relaxed);
                             if (done) done(status);
                             MutexLock lock(session->mutex);
                             if (--session->collective_sends == 0) session->idle.NotifyAll();
                           });
  return Status();
}

// ---- arriving

void Worker::Impl::Accept(WorkerSession& session, uint64_t step, int32_t edge, Tensor tensor,
                          uint64_t iteration) {
  StepClient* const client = iteration == 0 ? session.client.load() : nullptr;
  if (client != nullptr && client->OnFetch(step, edge, tensor)) return;
  Deliver(session, step, edge, std::move(tensor), iteration);
}

void Worker::Impl::Deliver(WorkerSession& session, uint64_t step_id, int32_t edge, Tensor tensor,
                           uint64_t iteration) {
  std::shared_ptr<Step> step;
  {
    MutexLock lock(session.mutex);
    StepSlot& slot = session.SlotOf(step_id);
    if (!slot.Runs(step_id)) {
      if (!session.ParkEarly(step_id)) {
        CountDropped("a tensor of a step that is over");
        return;
      }
      if (slot.Keep(edge, iteration, &tensor)) return;
    } else {
      step = slot.running;
    }
  }
  if (step != nullptr) return step->Deliver(edge, std::move(tensor), iteration);
  FailHere(
      session, step_id,
      ResourceExhausted("no memory at " + task_ + " for the tensors that came before their step"));
}

void Worker::Impl::FailHere(WorkerSession& session, uint64_t step_id, const Status& status) {
  // Tell the client here, too: it may wait for a step of which this process runs no part.
  if (StepClient* client = session.client) client->OnStepFailed(step_id, status);
  AbortHere(session, step_id, status);
}

class Worker::Impl::Port : public MessageHandler {
 public:
  Port(Impl* worker, WorkerSession* session) : worker_(worker), session_(session) {}
  PayloadSink OnMessage(std::string_view header, size_t payload_bytes) override {
    return worker_->OnMessage(*session_, header, payload_bytes, /*for_gpus=*/false);
  }
  PayloadSink OnGpuMessage(std::string_view header, size_t payload_bytes) override {
    return worker_->OnMessage(*session_, header, payload_bytes, /*for_gpus=*/true);
  }
  void OnDelivered(std::string_view header, Payload payload) override {
    worker_->OnDelivered(*session_, header, std::move(payload));
  }

 private:
  Impl* const worker_;
  WorkerSession* const session_;
};

std::unique_ptr<MessageHandler> Worker::Impl::MakePort(WorkerSession* session) {
  return std::make_unique<Port>(this, session);
}

bool Worker::Impl::Receive(WorkerSession& session, std::string_view header, size_t payload_bytes,
                           StepMessage* message) {
  using State = WorkerSession::State;
  const Status decoded = DecodeStepMessage(header, payload_bytes, message);
  const State state = session.state;
  const bool known = (decoded.ok() || message->step != 0) && message->session == session.id &&
                     message->incarnation == incarnation_;
  const bool collective = decoded.ok() && message->kind == StepMessageKind::kCollective;
  if (collective) session.brought_collectives.store(true, std::memory_order_relaxed);
  // Pings and pongs still pass after close: a peer that is still sending asks whether we live.
  const bool watches = decoded.ok() && (message->kind == StepMessageKind::kPing ||
                                        message->kind == StepMessageKind::kPong);
  const bool last_words =
      state == State::kClosed && (watches || (collective && collectives_->Awaits(*message)));
  if (!known || (state != State::kConnected && !last_words)) {
    CountDropped(decoded.ok() ? "a message of another life" : decoded.message().c_str());
    return false;
  }
  if (decoded.ok()) return true;
  // The step waits for what the message carried: fail it.
  CountDropped(decoded.message().c_str());
  FailHere(session, message->step, decoded.WithContext("receiving at " + task_));
  return false;
}

PayloadSink Worker::Impl::OnMessage(WorkerSession& session, std::string_view header,
                                    size_t payload_bytes, bool for_gpus) {
  StepMessage message;
  if (!Receive(session, header, payload_bytes, &message)) return {};
  const MemoryHolder::Scope memory(session.memory.get());
  if (message.kind == StepMessageKind::kCollective) {
    PayloadSink sink = collectives_->OnMessage(message, payload_bytes);
    if (sink.data == nullptr) return sink;
    Arrival* const arrival = arrivals_.Take();
    session.arriving.fetch_add(1, std::memory_order_relaxed);
    arrival->session = session.shared_from_this();
    arrival->of_collective = std::move(sink.done);
    sink.done = [this, arrival](const Status& status) { PartArrived(arrival, status); };
    return sink;
  }
  if (message.kind != StepMessageKind::kTensor) {
    CountDropped("a payload that belongs to no tensor");
    return {};
  }
  if ((message.flags & kPartFlag) != 0) return OnPart(session, message, payload_bytes);
  GpuDevice* gpu = nullptr;
  Tensor landing = for_gpus ? LandOnGpu(session, message, payload_bytes, &gpu) : Tensor();
  const bool on_gpu = landing.valid();
  // Strings and handles arrive packed.
  Result<Tensor> tensor =
      on_gpu ? std::move(landing)
      : IsPlainData(message.dtype)
          ? Tensor::Allocate(message.dtype, message.shape)
          : Tensor::Allocate(DT_UINT8, Shape{static_cast<int64_t>(payload_bytes)});
  if (!tensor.ok()) {
    FailHere(session, message.step,
             tensor.status().WithContext("receiving edge " + std::to_string(message.id) + " at " +
                                         task_));
    return {};
  }
  Arrival* arrival = arrivals_.Take();
  session.arriving.fetch_add(1, std::memory_order_relaxed);
  arrival->session = session.shared_from_this();
  arrival->step = message.step;
  arrival->edge = static_cast<int32_t>(message.id);
  arrival->iteration = message.iteration;
  arrival->dtype = message.dtype;
  arrival->shape = message.shape;
  arrival->tensor = std::move(tensor).value();
  return {arrival->tensor.raw(),
          [this, arrival](const Status& status) { Arrived(arrival, status); },
          arrival->tensor.buffer(), on_gpu};
}

Tensor Worker::Impl::LandOnGpu(WorkerSession& session, const StepMessage& message, size_t bytes,
                               GpuDevice** gpu) {
  if (!IsPlainData(message.dtype) || bytes < kLeastGpuTransfer) return Tensor();
  std::shared_ptr<const Plan> plan;
  {
    MutexLock lock(session.mutex);
    const StepSlot& slot = session.SlotOf(message.step);
    if (!slot.Runs(message.step) || slot.graph == nullptr) return Tensor();
    plan = slot.graph->plan;
  }
  const EdgeInfo* const edge = plan->FindRecvEdge(static_cast<int32_t>(message.id));
  if (edge == nullptr || edge->gpu == nullptr) return Tensor();
  *gpu = edge->gpu->gpu();
  Buffer memory = (*gpu)->memory().AllocateIdle(bytes, edge->gpu_owner);
  return memory ? Tensor(message.dtype, message.shape, std::move(memory)) : Tensor();
}

PayloadSink Worker::Impl::OnPart(WorkerSession& session, const StepMessage& message,
                                 size_t payload_bytes) {
  auto found = PartsOf(session, message);
  if (!found.ok()) {
    FailHere(session, message.step,
             found.status().WithContext("receiving edge " + std::to_string(message.id) + " at " +
                                        task_));
    return {};
  }
  if (*found == nullptr) return {};
  TensorParts& parts = **found;
  Arrival* const arrival = arrivals_.Take();
  session.arriving.fetch_add(1, std::memory_order_relaxed);
  arrival->session = session.shared_from_this();
  arrival->step = message.step;
  arrival->edge = static_cast<int32_t>(message.id);
  arrival->offset = static_cast<size_t>(message.offset);
  arrival->bytes = payload_bytes;
  arrival->parts = *std::move(found);
  return {static_cast<char*>(parts.landing.data()) + arrival->offset,
          [this, arrival](const Status& status) { TensorPartArrived(arrival, status); },
          parts.landing};
}

Result<std::shared_ptr<TensorParts>> Worker::Impl::PartsOf(WorkerSession& session,
                                                           const StepMessage& message) {
  const auto part = static_cast<size_t>(message.offset / kTensorPart);
  const auto edge = static_cast<int32_t>(message.id);
  for (std::shared_ptr<TensorParts> made;;) {
    {
      MutexLock lock(session.mutex);
      StepSlot& slot = session.SlotOf(message.step);
      if (!slot.Runs(message.step) && !session.ParkEarly(message.step)) {
        CountDropped("a part of a tensor of a step that is over");
        return std::shared_ptr<TensorParts>();
      }
      if (made != nullptr) slot.parts.emplace(edge, std::move(made));
      if (const auto it = slot.parts.find(edge); it != slot.parts.end()) {
        TensorParts& parts = *it->second;
        if (parts.tensor.dtype() != message.dtype || parts.tensor.shape() != message.shape)
          return DataLoss("parts of tensors of several types or shapes");
        if (parts.announced[part]) {
          CountDropped("a part of a tensor that came before");
          return std::shared_ptr<TensorParts>();
        }
        parts.announced[part] = true;
        return it->second;
      }
    }
    made = MakeParts(session, message);
    if (made == nullptr) {
      return ResourceExhausted("no memory for " + std::string(DTypeName(message.dtype)) +
                               message.shape.ToString());
    }
  }
}

std::shared_ptr<TensorParts> Worker::Impl::MakeParts(WorkerSession& session,
                                                     const StepMessage& message) {
  const size_t bytes = static_cast<size_t>(message.shape.elements()) * DTypeSize(message.dtype);
  auto made = std::make_shared<TensorParts>();
  made->left = (bytes + kTensorPart - 1) / kTensorPart;
  made->announced.resize(made->left);
  GpuDevice* gpu = nullptr;
  made->tensor = LandOnGpu(session, message, bytes, &gpu);
  if (made->tensor.valid()) made->landing = Buffer::Allocate(&gpu->pinned(), bytes);
  if (made->landing) {
    made->gpu = gpu;
    return made;
  }
  Result<Tensor> on_host = Tensor::Allocate(message.dtype, message.shape);
  if (!on_host.ok()) return nullptr;
  made->tensor = *std::move(on_host);
  made->landing = made->tensor.buffer();
  return made;
}

void Worker::Impl::PartArrived(Arrival* arrival, const Status& status) {
  const std::shared_ptr<WorkerSession> session = std::move(arrival->session);
  const auto done = std::exchange(arrival->of_collective, {});
  arrivals_.Give(arrival);
  if (done) done(status);
  session->arriving.fetch_sub(1, std::memory_order_relaxed);
}

void Worker::Impl::TensorPartArrived(Arrival* arrival, const Status& status) {
  const std::shared_ptr<WorkerSession> session = std::move(arrival->session);
  const std::shared_ptr<TensorParts> parts = std::move(arrival->parts);
  const uint64_t step = arrival->step;
  const int32_t edge = arrival->edge;
  const size_t offset = arrival->offset, bytes = arrival->bytes;
  arrivals_.Give(arrival);
  const MemoryHolder::Scope memory(session->memory.get());
  if (!status.ok() || parts->gpu == nullptr) {
    PartLanded(*session, step, edge, *parts, status.AsDerived());
    session->arriving.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  {
    MutexLock lock(session->mutex);
    ++session->landing;
  }
  // CloseSession waits for it, but not for a device that hangs: once the session is closed, the
  // worker may be gone.
  const auto landed = [this, session, parts, step, edge](const Status& copied) {
    const auto open = [&] {
      MutexLock lock(session->mutex);
      return !session->closed;
    };
    if (open()) {
      const MemoryHolder::Scope holder(session->memory.get());
      PartLanded(*session, step, edge, *parts, copied);
    }
    session->arriving.fetch_sub(1, std::memory_order_relaxed);
    MutexLock lock(session->mutex);
    if (--session->landing == 0) session->idle.NotifyAll();
  };
  const Status issued =
      CopyToDevice(*parts->gpu, parts->landing, parts->tensor, offset, bytes, landed);
  if (!issued.ok()) landed(issued);
}

void Worker::Impl::PartLanded(WorkerSession& session, uint64_t step, int32_t edge,
                              TensorParts& parts, const Status& status) {
  if (!status.ok()) {
    const std::string what = "receiving " + DescribeAwaited(session, step, edge) + " at " + task_;
    FailHere(session, step, status.WithContext(what));
  } else if (parts.left.fetch_sub(1) == 1) {
    {
      MutexLock lock(session.mutex);
      StepSlot& slot = session.SlotOf(step);
      if (slot.step == step) slot.parts.erase(edge);
    }
    parts.landing = Buffer();
    Accept(session, step, edge, std::move(parts.tensor), 0);
  }
}

void Worker::Impl::Arrived(Arrival* arrival, const Status& status) {
  std::shared_ptr<WorkerSession> session = std::move(arrival->session);
  session->arriving.fetch_sub(1, std::memory_order_relaxed);
  const MemoryHolder::Scope memory(session->memory.get());
  const uint64_t step = arrival->step;
  const int32_t edge = arrival->edge;
  const uint64_t iteration = arrival->iteration;
  Result<Tensor> tensor = std::move(arrival->tensor);
  if (status.ok() && !IsPlainData(arrival->dtype)) {
    tensor = UnpackTensor(arrival->dtype, arrival->shape,
                          {tensor->data<char>(), static_cast<size_t>(tensor->elements())});
  }
  arrivals_.Give(arrival);
  if (!status.ok() || !tensor.ok()) {
    const Status& cause = status.ok() ? tensor.status() : status;
    const std::string what = "receiving " + DescribeAwaited(*session, step, edge) + " at " + task_;
    FailHere(*session, step, cause.WithContext(what).AsDerived());
    return;
  }
  Accept(*session, step, edge, std::move(tensor).value(), iteration);
}

void Worker::Impl::OnDelivered(WorkerSession& session, std::string_view header, Payload payload) {
  StepMessage message;
  if (!Receive(session, header, payload.bytes, &message)) return;
  switch (message.kind) {
    case StepMessageKind::kRunStep:
      RunStep(session.shared_from_this(),
              {.handle = message.id,
               .step = message.step,
               .row = StepIds::Of(message.step, message.count, message.stride),
               .trace = (message.flags & kTraceFlag) != 0},
              false);
      return;
    case StepMessageKind::kAbortStep:
      if (message.id != kFromClient || session.client_peer == kSelf) {
        CountDropped("an abort-step that did not come from the session's client");
        return;
      }
      AbortHere(session, message.step, message.status);
      return;
    case StepMessageKind::kStepDone:
      // Only the client is told, and only by the session's tasks.
      if (session.client_peer != kSelf || message.id >= session.peers.size()) {
        CountDropped("a step-done of no member of the session");
      } else if (StepClient* client = session.client) {
        client->OnStepDone(message.step, static_cast<int>(message.id), message.status);
      }
      return;
    case StepMessageKind::kCollective:
      collectives_->OnDelivered(message, std::move(payload));
      return;
    case StepMessageKind::kPing:
    case StepMessageKind::kPong:
      OnPing(session, message);
      return;
    case StepMessageKind::kTensor:
      break;
  }
  const MemoryHolder::Scope memory(session.memory.get());
  const auto edge = static_cast<int32_t>(message.id);
  if ((message.flags & kPartFlag) != 0) {
    const PayloadSink sink = OnPart(session, message, payload.bytes);
    if (sink.data == nullptr) return;
    std::memcpy(sink.data, payload.data(), payload.bytes);
    return sink.done(Status());
  }
  auto make = [&]() -> Result<Tensor> {
    if ((message.flags & kDeadFlag) != 0) return DeadTensor();
    if (!IsPlainData(message.dtype)) {
      return UnpackTensor(message.dtype, message.shape,
                          {static_cast<const char*>(payload.data()), payload.bytes});
    }
    if (!payload.buffer) return Tensor::Allocate(message.dtype, message.shape);
    return Tensor(message.dtype, message.shape, std::move(payload.buffer), payload.offset);
  };
  Result<Tensor> tensor = make();
  if (!tensor.ok()) {
    FailHere(
        session, message.step,
        tensor.status().WithContext("receiving edge " + std::to_string(edge) + " at " + task_));
    return;
  }
  Accept(session, message.step, edge, std::move(tensor).value(), message.iteration);
}

}  // namespace monograph
