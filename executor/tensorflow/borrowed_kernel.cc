// A node of a borrowed op. Its attributes are translated once, when the kernel is made, and kept
// with an op object of the library's; each call makes a new one, copies them, adds the inputs and
// runs (2.6 us for a small tensor; reusing an object is no faster). A resource that a node makes (a
// table, an iterator) becomes a BorrowedResource in the ResourceManager, and its handle names it.
// Ops that wait run on threads of their own and are cancelled with the step.
#include "executor/tensorflow/borrowed_kernel.h"

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <cctype>
#include <deque>
#include <optional>
#include <system_error>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"
#include "executor/borrowed.h"
#include "executor/tensorflow/definitions.h"
#include "executor/tensorflow/functions.h"
#include "executor/tensorflow/tensors.h"
#include "graph/attr_proto.h"
#include "graph/graph.pb.h"

namespace monograph::tensorflow {
namespace {

constexpr const char* kContainer = "container";
constexpr const char* kSharedName = "shared_name";

// Deletes what C functions make.
class Handles {
 public:
  explicit Handles(const Library& library, size_t count) : library_(library), handles_(count) {}
  ~Handles() {
    for (TFE_TensorHandle* handle : handles_) {
      if (handle != nullptr) library_->TFE_DeleteTensorHandle(handle);
    }
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  TFE_TensorHandle** data() { return handles_.data(); }
  TFE_TensorHandle* Take(size_t i) { return std::exchange(handles_[i], nullptr); }

 private:
  const Library& library_;
  std::vector<TFE_TensorHandle*> handles_;
};

struct OpDeleter {
  const Library* library;
  void operator()(TFE_Op* op) const { (*library)->TFE_DeleteOp(op); }
};
using OpPointer = std::unique_ptr<TFE_Op, OpDeleter>;

struct StatusDeleter {
  const Library* library;
  void operator()(TF_Status* status) const { (*library)->TF_DeleteStatus(status); }
};
using StatusPointer = std::unique_ptr<TF_Status, StatusDeleter>;

StatusPointer NewStatus(const Library& library) {
  return StatusPointer(library->TF_NewStatus(), {&library});
}

// A name as a part of a container's, which may have letters, digits, '.', '-' and '/': all else
// becomes '-' and two hexadecimal digits.
std::string InContainerName(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '/') {
      text += c;
    } else {
      text += fmt::format("-{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text;
}

class BorrowedNode {
 public:
  BorrowedNode(const Library& library, const OpDef& def, const KernelConstruction& c)
      : library_(library),
        def_(def),
        trait_(TraitOf(def)),
        name_(c.node_name()),
        what_("node '" + name_ + "' (" + def.name() + ")"),
        container_(c.attrs().GetOr<std::string>(kContainer, "")),
        shared_name_(c.attrs().GetOr<std::string>(kSharedName, "")) {
    if (container_.empty()) container_ = "localhost";
    nameless_ = trait_.takes_no_name || (trait_.wants_no_name && shared_name_.empty());
    if (shared_name_.empty()) shared_name_ = name_;
    for (int i = 0; i < c.num_outputs(); ++i) outputs_.push_back(c.output_dtype(i));
  }

  Status Init(const KernelConstruction& c) {
    const StatusPointer status = NewStatus(library_);
    with_attrs_ = OpPointer(
        library_->TFE_NewOp(library_.context(), def_.name().c_str(), status.get()), {&library_});
    MG_RETURN_IF_ERROR(library_.StatusOf(status.get()));
    for (const AttrDef& attr : def_.attrs()) {
      const AttrValue* value = c.attrs().Find(attr.name);
      if (value == nullptr || attr.name == kContainer) continue;  // that is set by each call
      pb::AttrValue proto;
      AttrToProto(*value, &proto);
      if (proto.has_func()) MG_RETURN_IF_ERROR(GiveFunction(c, proto.mutable_func()));
      if (proto.has_list()) {
        for (pb::NameAttrList& one : *proto.mutable_list()->mutable_func())
          MG_RETURN_IF_ERROR(GiveFunction(c, &one));
      }
      if (attr.name == kSharedName && !nameless_) proto.set_s(shared_name_);
      const std::string bytes = proto.SerializeAsString();
      library_->TFE_OpSetAttrValueProto(with_attrs_.get(), attr.name.c_str(), bytes.data(),
                                        bytes.size(), status.get());
      MG_RETURN_IF_ERROR(
          library_.StatusOf(status.get()).WithContext("attribute '" + attr.name + "'"));
    }
    if (def_.FindAttr("seed") != nullptr) {
      // Nodes with equal attributes share the library's kernel and its random state; a unique
      // attribute gives each node its own. Default order: once per kernel.
      static std::atomic<uint64_t> count{0};
      const std::string own = std::to_string(++count);
      library_->TFE_OpSetAttrString(with_attrs_.get(), "_monograph_node", own.data(), own.size());
    }
    return Status();
  }

  bool waits() const { return trait_.waits; }

  Status Run(KernelContext& c, TFE_CancellationManager* cancellation) const {
    thread_local const StatusPointer status = NewStatus(library_);
    const OpPointer op(library_->TFE_NewOp(library_.context(), def_.name().c_str(), status.get()),
                       {&library_});
    MG_RETURN_IF_ERROR(library_.StatusOf(status.get()));
    library_->TFE_OpAddAttrs(op.get(), library_->TFE_OpGetAttrs(with_attrs_.get()));
    if (def_.FindAttr(kContainer) != nullptr) {
      MG_ASSIGN_OR_RETURN(std::string container, ContainerIn(c.resources()));
      if (nameless_) container += "/" + InContainerName(shared_name_);
      library_->TFE_OpSetAttrString(op.get(), kContainer, container.data(), container.size());
    }
    for (const Tensor& input : c.inputs()) {
      MG_ASSIGN_OR_RETURN(const InputHandle handle,
                          InputHandle::Make(library_, input, c.resources()));
      library_->TFE_OpAddInput(op.get(), handle.get(), status.get());
      MG_RETURN_IF_ERROR(library_.StatusOf(status.get()));
    }
    if (cancellation != nullptr)
      library_->TFE_OpSetCancellationManager(op.get(), cancellation, status.get());
    Handles handles(library_, outputs_.size());
    int count = static_cast<int>(outputs_.size());
    {
      const Running running(what_.c_str());
      library_->TFE_Execute(op.get(), handles.data(), &count, status.get());
    }
    MG_RETURN_IF_ERROR(library_.StatusOf(status.get()));
    if (count != static_cast<int>(outputs_.size()))
      return Internal("TensorFlow gave " + std::to_string(count) + " outputs, not " +
                      std::to_string(outputs_.size()));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      Result<Tensor> output = outputs_[i] == DT_RESOURCE
                                  ? NameResource(handles.Take(i), c)
                                  : TensorOf(library_, handles.Take(i), outputs_[i]);
      MG_RETURN_IF_ERROR(output.status());
      c.set_output(static_cast<int>(i), *std::move(output));
    }
    return Status();
  }

 private:
  // A number for each manager, in the manager. Default order: once per manager.
  class TaskNumber : public Resource {
   public:
    std::string DebugString() const override { return "number of a task for TensorFlow"; }
    const std::string text = [] {
      static std::atomic<uint64_t> count{0};
      return std::to_string(++count);
    }();
  };

  // The name of the container in the library: with a number of the manager's own, since all tasks
  // of a process share one context.
  Result<std::string> ContainerIn(ResourceManager& manager) const {
    MG_ASSIGN_OR_RETURN(const auto number,
                        manager.FindOrCreate<TaskNumber>(container_, "(TensorFlow)", [] {
                          return std::make_shared<TaskNumber>();
                        }));
    return container_ + "/" + number->text;
  }

  Status GiveFunction(const KernelConstruction& c, pb::NameAttrList* function) const {
    const auto* offered = dynamic_cast<const FunctionsConstruction*>(&c);
    if (offered == nullptr) return Unimplemented("a node by itself has no functions");
    MG_ASSIGN_OR_RETURN(std::string name,
                        AddFunction(library_, offered->functions(), function->name()));
    function->set_name(std::move(name));
    return Status();
  }

  // The resource that `handle` names, by a name of ours. One that has a name of its own stays until
  // its container is cleared; another one goes with the tensor.
  Result<Tensor> NameResource(TFE_TensorHandle* handle, KernelContext& c) const {
    const bool named = def_.FindAttr(kSharedName) != nullptr;
    // Default order: a call that makes a resource takes much longer.
    static std::atomic<uint64_t> count{0};
    const std::string name =
        named ? def_.name() + " " + shared_name_ : def_.name() + " #" + std::to_string(++count);
    auto made = std::make_shared<BorrowedResource>(library_, handle, def_.name(), named);
    bool used = false;
    MG_ASSIGN_OR_RETURN(const auto resource,
                        c.resources().FindOrCreate<BorrowedResource>(container_, name, [&] {
                          used = true;
                          return made;
                        }));
    if (!used) made->Disown();
    ResourceManager* const manager = &c.resources();
    auto* const names = new ResourceHandle{std::string(c.device()), container_, name};
    return Tensor(DT_RESOURCE, Shape(), Buffer::Wrap(names, sizeof *names, [names, named, manager] {
                    if (!named) manager->Delete(names->container, names->name);
                    delete names;
                  }));
  }

  const Library& library_;
  const OpDef& def_;
  const Trait trait_;
  const std::string name_, what_;
  std::string container_, shared_name_;
  bool nameless_;  // in the library, where its container tells it from others
  std::vector<DType> outputs_;
  OpPointer with_attrs_{nullptr, {nullptr}};
};

class BorrowedKernel : public Kernel {
 public:
  explicit BorrowedKernel(std::unique_ptr<const BorrowedNode> node) : node_(std::move(node)) {}
  Status Compute(KernelContext& c) override { return node_->Run(c, nullptr); }

 private:
  const std::unique_ptr<const BorrowedNode> node_;
};

// Threads for calls that wait. Each call gets one at once: an idle one, or a new one, of kMost at
// most. A thread that was idle for a while ends.
class WaitingThreads {
 public:
  static WaitingThreads& Get() {
    static auto* const threads = new WaitingThreads;
    return *threads;
  }

  // ResourceExhausted, and the call is not made, if there is no thread for it: it cannot wait for
  // one, since those that have one may wait for what it does.
  Status Run(std::function<void()> call) {
    MutexLock lock(mutex_);
    if (calls_.size() < idle_) {
      calls_.push_back(std::move(call));
      changed_.NotifyOne();
      return Status();
    }
    if (threads_ >= kMost) {
      return ResourceExhausted("already " + std::to_string(threads_) +
                               " calls of TensorFlow's ops wait in this process");
    }
    try {
      StartThread("mg-borrowed-" + std::to_string(started_), [this] { Work(); }).detach();
    } catch (const std::system_error& error) {
      return ResourceExhausted("no thread for a call of TensorFlow's op that waits: " +
                               std::string(error.what()));
    }
    ++started_;
    ++threads_;
    calls_.push_back(std::move(call));
    return Status();
  }

 private:
  static constexpr int kMost = 4096;
  static constexpr std::chrono::seconds kIdle{10};

  void Work() {
    MutexLock lock(mutex_);
    for (;;) {
      while (!calls_.empty()) {
        const std::function<void()> call = std::move(calls_.front());
        calls_.pop_front();
        lock.Unlock();
        call();
        lock.Lock();
      }
      ++idle_;
      const bool more =
          changed_.WaitFor(mutex_, kIdle, [this]() MG_REQUIRES(mutex_) { return !calls_.empty(); });
      --idle_;
      if (!more) {
        --threads_;
        return;
      }
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> calls_ MG_GUARDED_BY(mutex_);
  size_t idle_ MG_GUARDED_BY(mutex_) = 0;
  int started_ MG_GUARDED_BY(mutex_) = 0, threads_ MG_GUARDED_BY(mutex_) = 0;
};

class WaitingBorrowedKernel : public AsyncKernel {
 public:
  WaitingBorrowedKernel(const Library& library, std::unique_ptr<const BorrowedNode> node)
      : library_(library), node_(std::move(node)) {}

  void ComputeAsync(KernelContext& c, Done done) override {
    const std::shared_ptr<TFE_CancellationManager> cancellation(
        library_->TFE_NewCancellationManager(),
        [library = &library_](auto* made) { (*library)->TFE_DeleteCancellationManager(made); });
    const bool runs = c.OnCancel([library = &library_, cancellation] {
      (*library)->TFE_CancellationManagerStartCancel(cancellation.get());
    });
    const Status begun = WaitingThreads::Get().Run([this, &c, cancellation, runs, done] {
      done(runs ? node_->Run(c, cancellation.get())
                : Cancelled("the step was aborted before this node ran").AsDerived());
    });
    if (!begun.ok()) done(begun);
  }

 private:
  const Library& library_;
  const std::unique_ptr<const BorrowedNode> node_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeBorrowedKernel(const KernelConstruction& c) {
  MG_ASSIGN_OR_RETURN(const Library* library, Library::Open());
  MG_RETURN_IF_ERROR(Definitions::Get().Require(c.op()));
  const OpDef& def = *Definitions::Get().Find(c.op());
  auto node = std::make_unique<BorrowedNode>(*library, def, c);
  MG_RETURN_IF_ERROR(node->Init(c).WithContext("TensorFlow's op " + def.name()));
  if (node->waits())
    return std::unique_ptr<Kernel>(new WaitingBorrowedKernel(*library, std::move(node)));
  return std::unique_ptr<Kernel>(new BorrowedKernel(std::move(node)));
}

}  // namespace monograph::tensorflow
