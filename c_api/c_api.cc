// libmonograph_c.so: <monograph/c_api.h> over the C++ classes. Each function is the call of one
// method between a conversion of its arguments and one of its result; Guarded turns exceptions of
// the standard library, which alone throws here, into a status.
//
// A graph is shared by its handle and its sessions. Preparing a signature reads it and an import
// replaces what it holds, so both take its lock; a running step looks at what was prepared alone.
#include "monograph/c_api.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "c_api/options.h"
#include "client/registries.h"
#include "client/target.h"
#include "graph/graph.pb.h"
#include "graph/graph_def.h"
#include "graph/graph_file.h"
#include "ops/py_func/py_func.h"
#include "transport/control/hello.h"

using namespace monograph;  // NOLINT: a file of C functions

struct MG_Status {
  Status status;
};

struct MG_Table {
  std::vector<std::vector<std::string>> rows;
};

struct MG_Tensor {
  Tensor tensor;
};

namespace {

struct SharedGraph {
  mutable SharedMutex mutex;
  Graph graph MG_GUARDED_BY(mutex) = NewGraph();
};

// Destroys the session before its graph.
struct OpenSession {
  std::shared_ptr<SharedGraph> graph;
  std::unique_ptr<Session> session;
};

}  // namespace

struct MG_Graph {
  std::shared_ptr<SharedGraph> shared = std::make_shared<SharedGraph>();
};

struct MG_SessionOptions {
  c_api::SessionSettings settings;
};

struct MG_Session {
  std::shared_ptr<OpenSession> open;
};

struct MG_Cancellation {
  // Default order: looked up now and then.
  std::atomic<bool> cancelled = false;
};

struct MG_RunMetadata {
  RunMetadata metadata;
};

struct MG_RunOptions {
  int64_t timeout_ms = -1;
  const MG_Cancellation* cancellation = nullptr;
  int (*poll)(void*) = nullptr;
  void* poll_arg = nullptr;
  MG_RunMetadata* metadata = nullptr;
};

struct MG_Callable {
  std::shared_ptr<OpenSession> open;
  Callable callable;
  size_t feeds, fetches;
};

struct MG_PartialRun {
  std::shared_ptr<OpenSession> open;
  PartialRunHandle handle;
};

struct MG_ServerOptions {
  c_api::ServerSettings settings;
};

struct MG_Server {
  std::unique_ptr<Server> server;
  std::string target;
  Mutex mutex;
  CondVar stopped_changed;
  bool stopped MG_GUARDED_BY(mutex) = false;
};

namespace {

// Runs `body`, which returns a Status, and tells the caller.
template <typename Body>
void Guarded(MG_Status* status, const Body& body) {
  Status result;
  try {
    result = body();
  } catch (const std::bad_alloc&) {
    result = ResourceExhausted("out of memory");
  } catch (const std::exception& e) {
    result = Internal(std::string("unexpected exception: ") + e.what());
  }
  if (status != nullptr) status->status = std::move(result);
}

// The same for `make`, which returns a Result of a unique pointer; nullptr if it fails.
template <typename Made, typename Make>
Made* GuardedMake(MG_Status* status, const Make& make) {
  Made* made = nullptr;
  Guarded(status, [&]() -> Status {
    MG_ASSIGN_OR_RETURN(std::unique_ptr<Made> result, make());
    made = result.release();
    return Status();
  });
  return made;
}

Result<std::vector<std::string>> Names(const char* const* names, int count, const char* what) {
  std::vector<std::string> list;
  for (int i = 0; i < count; ++i) {
    if (names == nullptr || names[i] == nullptr) {
      return InvalidArgument(std::string(what) + " " + std::to_string(i) + " of " +
                             std::to_string(count) + " has no name");
    }
    list.emplace_back(names[i]);
  }
  return list;
}

Result<std::string> Required(const char* text, const char* what) {
  if (text == nullptr) return InvalidArgument(std::string(what) + " is missing");
  return std::string(text);
}

Result<Shape> ShapeOf(const int64_t* dims, int num_dims) {
  if (num_dims < 0 || (num_dims > 0 && dims == nullptr))
    return InvalidArgument("a shape has 0 or more dimensions, and their sizes");
  return Shape::Make({dims, static_cast<size_t>(num_dims)});
}

std::unique_ptr<MG_Tensor> Handle(Tensor tensor) {
  return std::unique_ptr<MG_Tensor>(new MG_Tensor{std::move(tensor)});
}

MG_Table* NewTable(std::vector<std::vector<std::string>> rows) {
  return new MG_Table{std::move(rows)};
}

// The cluster of a setting: JSON or a path, where "" means none.
Result<std::optional<ClusterSpec>> ClusterOf(const std::string& text) {
  if (text.empty()) return std::optional<ClusterSpec>();
  MG_ASSIGN_OR_RETURN(ClusterSpec cluster, ClusterSpec::FromFlag(text));
  return std::optional<ClusterSpec>(std::move(cluster));
}

Status Import(MG_Graph* graph, const std::function<Result<Graph>(const Graph&)>& extend) {
  SharedGraph& shared = *graph->shared;
  MutexLock lock(shared.mutex);
  MG_ASSIGN_OR_RETURN(shared.graph, extend(shared.graph));
  return Status();
}

Result<std::unique_ptr<MG_Session>> Open(const MG_Graph& graph, c_api::SessionSettings settings) {
  auto open = std::make_shared<OpenSession>();
  open->graph = graph.shared;
  SessionOptions& options = settings.options;
  MG_ASSIGN_OR_RETURN(options.key, c_api::ReadKey(settings.key_file));
  MG_ASSIGN_OR_RETURN(std::optional<ClusterSpec> cluster, ClusterOf(settings.cluster));
  if (cluster && !settings.target.empty())
    return InvalidArgument("give a target or a cluster, not both");
  if (!cluster) {
    MG_ASSIGN_OR_RETURN(cluster,
                        ClusterOfTarget(settings.target, options.key, options.start_timeout));
  }
  const SharedGraph& shared = *graph.shared;
  ReaderLock lock(shared.mutex);
  if (cluster) {
    MG_ASSIGN_OR_RETURN(open->session,
                        Session::Connect(*cluster, shared.graph, std::move(options)));
  } else {
    options.device_count = {{kCpu, settings.cpu_devices}};
    MG_ASSIGN_OR_RETURN(open->session, Session::Local(shared.graph, std::move(options)));
  }
  return std::unique_ptr<MG_Session>(new MG_Session{std::move(open)});
}

Result<std::unique_ptr<MG_Callable>> Prepare(const std::shared_ptr<OpenSession>& open,
                                             const char* const* feeds, int num_feeds,
                                             const char* const* fetches, int num_fetches,
                                             const char* const* targets, int num_targets) {
  MG_ASSIGN_OR_RETURN(const std::vector<std::string> fed, Names(feeds, num_feeds, "feed"));
  MG_ASSIGN_OR_RETURN(const std::vector<std::string> fetched, Names(fetches, num_fetches, "fetch"));
  MG_ASSIGN_OR_RETURN(const std::vector<std::string> run, Names(targets, num_targets, "target"));
  ReaderLock lock(open->graph->mutex);
  MG_ASSIGN_OR_RETURN(Callable callable, open->session->MakeCallableByName(fed, fetched, run));
  return std::unique_ptr<MG_Callable>(
      new MG_Callable{open, std::move(callable), fed.size(), fetched.size()});
}

RunOptions OptionsOf(const MG_RunOptions* options) {
  RunOptions made;
  made.borrowed_feeds = true;
  if (options == nullptr) return made;
  made.trace = options->metadata != nullptr;
  if (options->timeout_ms >= 0) made.timeout = std::chrono::milliseconds(options->timeout_ms);
  if (options->cancellation == nullptr && options->poll == nullptr) return made;
  made.cancelled = [options] {
    return (options->cancellation != nullptr && options->cancellation->cancelled.load()) ||
           (options->poll != nullptr && options->poll(options->poll_arg) != 0);
  };
  return made;
}

Result<std::vector<Tensor>> Values(MG_Tensor* const* feeds, int num_feeds) {
  std::vector<Tensor> values;
  for (int i = 0; i < num_feeds; ++i) {
    if (feeds[i] == nullptr) return InvalidArgument("feed " + std::to_string(i) + " is NULL");
    values.push_back(feeds[i]->tensor);
  }
  return values;
}

void HandOver(std::vector<Tensor> results, MG_Tensor** fetched) {
  std::vector<std::unique_ptr<MG_Tensor>> handles;
  for (Tensor& result : results) handles.push_back(Handle(std::move(result)));
  for (size_t i = 0; i < handles.size(); ++i) fetched[i] = handles[i].release();
}

Status Run(const MG_Callable& callable, const MG_RunOptions* options, MG_Tensor* const* feeds,
           int num_feeds, MG_Tensor** fetched, int num_fetches) {
  const auto given = [](int count) { return static_cast<size_t>(std::max(count, 0)); };
  if (given(num_feeds) != callable.feeds || given(num_fetches) != callable.fetches) {
    return InvalidArgument("a callable of " + std::to_string(callable.feeds) + " feeds and " +
                           std::to_string(callable.fetches) + " fetches was given " +
                           std::to_string(num_feeds) + " and room for " +
                           std::to_string(num_fetches));
  }
  if (options != nullptr && options->cancellation != nullptr &&
      options->cancellation->cancelled.load())
    return Cancelled("the step was cancelled before it began");
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values, Values(feeds, num_feeds));
  RunMetadata* const metadata =
      options == nullptr || options->metadata == nullptr ? nullptr : &options->metadata->metadata;
  if (metadata != nullptr) *metadata = {};
  MG_ASSIGN_OR_RETURN(
      std::vector<Tensor> results,
      callable.open->session->RunCallable(callable.callable, values, OptionsOf(options), metadata));
  HandOver(std::move(results), fetched);
  return Status();
}

Status RunPart(const MG_PartialRun& partial, const MG_RunOptions* options,
               const char* const* feed_names, MG_Tensor* const* feeds, int num_feeds,
               const char* const* fetch_names, MG_Tensor** fetched, int num_fetches) {
  MG_ASSIGN_OR_RETURN(const std::vector<std::string> fed, Names(feed_names, num_feeds, "feed"));
  MG_ASSIGN_OR_RETURN(const std::vector<std::string> asked,
                      Names(fetch_names, num_fetches, "fetch"));
  MG_ASSIGN_OR_RETURN(std::vector<Tensor> values, Values(feeds, num_feeds));
  std::vector<std::pair<std::string, Tensor>> named;
  for (size_t i = 0; i < fed.size(); ++i) named.emplace_back(fed[i], std::move(values[i]));
  MG_ASSIGN_OR_RETURN(
      std::vector<Tensor> results,
      partial.open->session->PartialRun(partial.handle, named, asked, OptionsOf(options)));
  HandOver(std::move(results), fetched);
  return Status();
}

void ClearFetches(MG_Tensor** fetched, int num_fetches) {
  for (int i = 0; i < num_fetches; ++i) fetched[i] = nullptr;
}

}  // namespace

const char* MG_Version(void) {
  static const std::string version = control::SoftwareVersion();
  return version.c_str();
}

// ---- Status

MG_Status* MG_NewStatus(void) { return new MG_Status; }
void MG_DeleteStatus(MG_Status* status) { delete status; }

void MG_SetStatus(MG_Status* status, MG_Code code, const char* message) {
  Guarded(status, [&] {
    if (code == MG_OK) return Status();
    return Status(static_cast<Code>(code), message == nullptr ? "" : message);
  });
}

MG_Code MG_GetCode(const MG_Status* status) { return static_cast<MG_Code>(status->status.code()); }
const char* MG_Message(const MG_Status* status) { return status->status.message().c_str(); }
const char* MG_LostTask(const MG_Status* status) { return status->status.lost_task().c_str(); }

const char* MG_CodeName(MG_Code code) {
  // Names of known codes are literals; a code beyond them gets the name of what it means here.
  const bool known = code >= MG_OK && code <= MG_UNAUTHENTICATED;
  return CodeName(known ? static_cast<Code>(code) : Code::kUnknown).data();
}

// ---- Tables

void MG_DeleteTable(MG_Table* table) { delete table; }
int MG_TableRows(const MG_Table* table) { return static_cast<int>(table->rows.size()); }

const char* MG_TableText(const MG_Table* table, int row, int column) {
  if (row < 0 || row >= MG_TableRows(table) || column < 0) return "";
  const std::vector<std::string>& texts = table->rows[static_cast<size_t>(row)];
  return static_cast<size_t>(column) < texts.size() ? texts[static_cast<size_t>(column)].c_str()
                                                    : "";
}

// ---- Tensors

size_t MG_DataTypeSize(MG_DataType type) {
  const auto dtype = static_cast<DType>(type);
  return IsPlainData(dtype) ? DTypeSize(dtype) : 0;
}

const char* MG_DataTypeName(MG_DataType type) {
  const auto dtype = static_cast<DType>(type);
  // Names of types that the library has are literals.
  return DTypeSize(dtype) > 0 ? DTypeName(dtype).data() : "unknown";
}

MG_Tensor* MG_NewTensor(MG_DataType type, const int64_t* dims, int num_dims, void* data, size_t len,
                        void (*deallocator)(void*, size_t, void*), void* arg, MG_Status* status) {
  return GuardedMake<MG_Tensor>(status, [&]() -> Result<std::unique_ptr<MG_Tensor>> {
    const auto dtype = static_cast<DType>(type);
    if (!IsPlainData(dtype)) {
      return InvalidArgument("a tensor of " + std::string(DTypeName(dtype)) +
                             " cannot be made of the caller's memory");
    }
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(dims, num_dims));
    const size_t size = DTypeSize(dtype);
    if (static_cast<size_t>(shape.elements()) > SIZE_MAX / size ||
        len != static_cast<size_t>(shape.elements()) * size) {
      return InvalidArgument(std::string(DTypeName(dtype)) + shape.ToString() + " does not have " +
                             std::to_string(len) + " bytes");
    }
    const size_t number = IsComplex(dtype) ? size / 2 : size;
    if (reinterpret_cast<uintptr_t>(data) % number != 0) {
      return InvalidArgument("memory for " + std::string(DTypeName(dtype)) +
                             " must be aligned to " + std::to_string(number) + " bytes");
    }
    std::function<void()> release;
    if (deallocator != nullptr) release = [=] { deallocator(data, len, arg); };
    return Handle(Tensor(dtype, shape, Buffer::Wrap(data, len, std::move(release))));
  });
}

MG_Tensor* MG_AllocateTensor(MG_DataType type, const int64_t* dims, int num_dims,
                             MG_Status* status) {
  return GuardedMake<MG_Tensor>(status, [&]() -> Result<std::unique_ptr<MG_Tensor>> {
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(dims, num_dims));
    MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(static_cast<DType>(type), shape));
    return Handle(std::move(tensor));
  });
}

MG_Tensor* MG_NewStringTensor(const int64_t* dims, int num_dims, const char* const* values,
                              const size_t* lengths, MG_Status* status) {
  return GuardedMake<MG_Tensor>(status, [&]() -> Result<std::unique_ptr<MG_Tensor>> {
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(dims, num_dims));
    MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DT_STRING, shape));
    for (int64_t i = 0; i < shape.elements(); ++i)
      tensor.strings()[i].assign(values[i], lengths[i]);
    return Handle(std::move(tensor));
  });
}

void MG_DeleteTensor(MG_Tensor* tensor) { delete tensor; }

MG_DataType MG_TensorType(const MG_Tensor* tensor) {
  return static_cast<MG_DataType>(tensor->tensor.dtype());
}

int MG_NumDims(const MG_Tensor* tensor) { return tensor->tensor.shape().rank(); }

int64_t MG_Dim(const MG_Tensor* tensor, int index) {
  const Shape& shape = tensor->tensor.shape();
  return index >= 0 && index < shape.rank() ? shape[index] : -1;
}

int64_t MG_TensorElements(const MG_Tensor* tensor) { return tensor->tensor.elements(); }

size_t MG_TensorBytes(const MG_Tensor* tensor) {
  return IsPlainData(tensor->tensor.dtype()) ? tensor->tensor.bytes() : 0;
}

void* MG_TensorData(const MG_Tensor* tensor) {
  if (!IsPlainData(tensor->tensor.dtype())) return nullptr;
  return const_cast<void*>(tensor->tensor.raw());  // the header says who may write to it
}

int MG_TensorIsExclusive(const MG_Tensor* tensor) { return tensor->tensor.unique() ? 1 : 0; }
int MG_TensorIsConstant(const MG_Tensor* tensor) {
  return tensor->tensor.buffer().constant() ? 1 : 0;
}

const char* MG_TensorString(const MG_Tensor* tensor, int64_t index, size_t* length) {
  const Tensor& value = tensor->tensor;
  if (value.dtype() != DT_STRING || index < 0 || index >= value.elements()) return nullptr;
  const std::string& text = value.strings()[index];
  if (length != nullptr) *length = text.size();
  return text.data();
}

// ---- Graphs

MG_Graph* MG_NewGraph(void) { return new MG_Graph; }
void MG_DeleteGraph(MG_Graph* graph) { delete graph; }

void MG_GraphImport(MG_Graph* graph, const void* graph_def, size_t len, MG_Status* status) {
  Guarded(status, [&] {
    return Import(graph, [&](const Graph& before) {
      const std::string_view bytes(static_cast<const char*>(graph_def), len);
      return before.num_nodes() == 0 ? ParseGraph(bytes, &before.registry())
                                     : ExtendGraph(before, bytes);
    });
  });
}

void MG_GraphImportFile(MG_Graph* graph, const char* path, MG_Status* status) {
  Guarded(status, [&]() -> Status {
    MG_ASSIGN_OR_RETURN(const std::string file, Required(path, "the path"));
    GraphDef def;
    MG_RETURN_IF_ERROR(ReadGraphDef(file, &def));
    return Import(graph, [&](const Graph& before) { return ExtendGraph(before, def); })
        .WithContext(file);
  });
}

MG_Table* MG_GraphNodes(const MG_Graph* graph) {
  const SharedGraph& shared = *graph->shared;
  ReaderLock lock(shared.mutex);
  const Graph& nodes = shared.graph;
  std::vector<std::vector<std::string>> rows;
  for (NodeId id = 0; id < nodes.num_nodes(); ++id) {
    rows.push_back({std::string(nodes.name(id)), nodes.op(id).name(),
                    nodes.device_index(id) == 0 ? "" : nodes.device(id).ToString()});
  }
  return NewTable(std::move(rows));
}

void MG_GraphTensor(const MG_Graph* graph, const char* name, MG_DataType* type, int64_t* dims,
                    int max_dims, int* num_dims, MG_Status* status) {
  Guarded(status, [&]() -> Status {
    MG_ASSIGN_OR_RETURN(const std::string tensor, Required(name, "the tensor's name"));
    const SharedGraph& shared = *graph->shared;
    ReaderLock lock(shared.mutex);
    const Graph& nodes = shared.graph;
    MG_ASSIGN_OR_RETURN(const Endpoint endpoint, nodes.FindOutput(tensor));
    const PartialShape& shape = nodes.shape(endpoint);
    *type = static_cast<MG_DataType>(nodes.dtype(endpoint));
    *num_dims = shape.rank();
    for (int i = 0; i < std::min(shape.rank(), max_dims); ++i) dims[i] = shape.dim(i);
    return Status();
  });
}

// ---- Sessions

MG_SessionOptions* MG_NewSessionOptions(void) { return new MG_SessionOptions; }
void MG_DeleteSessionOptions(MG_SessionOptions* options) { delete options; }

void MG_SetSessionOption(MG_SessionOptions* options, const char* name, const char* value,
                         MG_Status* status) {
  Guarded(status, [&]() -> Status {
    MG_ASSIGN_OR_RETURN(const std::string option, Required(name, "the option's name"));
    MG_ASSIGN_OR_RETURN(const std::string text, Required(value, "the option's value"));
    return options->settings.Set(option, text);
  });
}

MG_Session* MG_NewSession(MG_Graph* graph, const MG_SessionOptions* options, MG_Status* status) {
  return GuardedMake<MG_Session>(status, [&] {
    return Open(*graph, options == nullptr ? c_api::SessionSettings() : options->settings);
  });
}

void MG_CloseSession(MG_Session* session, MG_Status* status) {
  Guarded(status, [&] { return session->open->session->Close(); });
}

void MG_DeleteSession(MG_Session* session) {
  // A callable may hold what is left of it.
  if (session != nullptr) MG_CloseSession(session, nullptr);
  delete session;
}

void MG_ResetSession(MG_Session* session, const char* const* containers, int num_containers,
                     MG_Status* status) {
  Guarded(status, [&]() -> Status {
    MG_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        Names(containers, num_containers, "container"));
    return session->open->session->Reset(names);
  });
}

MG_Table* MG_SessionDevices(const MG_Session* session) {
  std::vector<std::vector<std::string>> rows;
  for (const DeviceInfo& device : session->open->session->devices()) {
    rows.push_back(
        {device.name.ToString(), device.description, std::to_string(device.memory_limit)});
  }
  return NewTable(std::move(rows));
}

MG_Cancellation* MG_NewCancellation(void) { return new MG_Cancellation; }
void MG_DeleteCancellation(MG_Cancellation* cancellation) { delete cancellation; }
void MG_Cancel(MG_Cancellation* cancellation) { cancellation->cancelled.store(true); }

MG_RunMetadata* MG_NewRunMetadata(void) { return new MG_RunMetadata; }
void MG_DeleteRunMetadata(MG_RunMetadata* metadata) { delete metadata; }

const char* MG_TraceJson(const MG_RunMetadata* metadata) {
  return metadata->metadata.trace_json.c_str();
}

const char* MG_TraceError(const MG_RunMetadata* metadata) {
  return metadata->metadata.trace_error.c_str();
}

MG_RunOptions* MG_NewRunOptions(void) { return new MG_RunOptions; }
void MG_DeleteRunOptions(MG_RunOptions* options) { delete options; }

void MG_SetTimeout(MG_RunOptions* options, int64_t milliseconds) {
  options->timeout_ms = milliseconds;
}

void MG_SetCancellation(MG_RunOptions* options, const MG_Cancellation* cancellation) {
  options->cancellation = cancellation;
}

void MG_SetPoll(MG_RunOptions* options, int (*poll)(void*), void* arg) {
  options->poll = poll;
  options->poll_arg = arg;
}

void MG_SetRunMetadata(MG_RunOptions* options, MG_RunMetadata* metadata) {
  options->metadata = metadata;
}

void MG_SessionRun(MG_Session* session, const MG_RunOptions* options, const char* const* feed_names,
                   MG_Tensor* const* feeds, int num_feeds, const char* const* fetch_names,
                   MG_Tensor** fetched, int num_fetches, const char* const* target_names,
                   int num_targets, MG_Status* status) {
  ClearFetches(fetched, num_fetches);
  Guarded(status, [&]() -> Status {
    MG_ASSIGN_OR_RETURN(const std::unique_ptr<MG_Callable> callable,
                        Prepare(session->open, feed_names, num_feeds, fetch_names, num_fetches,
                                target_names, num_targets));
    return Run(*callable, options, feeds, num_feeds, fetched, num_fetches);
  });
}

MG_Callable* MG_MakeCallable(MG_Session* session, const char* const* feed_names, int num_feeds,
                             const char* const* fetch_names, int num_fetches,
                             const char* const* target_names, int num_targets, MG_Status* status) {
  return GuardedMake<MG_Callable>(status, [&] {
    return Prepare(session->open, feed_names, num_feeds, fetch_names, num_fetches, target_names,
                   num_targets);
  });
}

void MG_DeleteCallable(MG_Callable* callable) { delete callable; }

void MG_RunCallable(MG_Callable* callable, const MG_RunOptions* options, MG_Tensor* const* feeds,
                    int num_feeds, MG_Tensor** fetched, int num_fetches, MG_Status* status) {
  ClearFetches(fetched, num_fetches);
  Guarded(status, [&] { return Run(*callable, options, feeds, num_feeds, fetched, num_fetches); });
}

MG_PartialRun* MG_PartialRunSetup(MG_Session* session, const char* const* feed_names, int num_feeds,
                                  const char* const* fetch_names, int num_fetches,
                                  const char* const* target_names, int num_targets,
                                  MG_Status* status) {
  return GuardedMake<MG_PartialRun>(status, [&]() -> Result<std::unique_ptr<MG_PartialRun>> {
    MG_ASSIGN_OR_RETURN(const std::vector<std::string> feeds, Names(feed_names, num_feeds, "feed"));
    MG_ASSIGN_OR_RETURN(const std::vector<std::string> fetches,
                        Names(fetch_names, num_fetches, "fetch"));
    MG_ASSIGN_OR_RETURN(const std::vector<std::string> targets,
                        Names(target_names, num_targets, "target"));
    const std::shared_ptr<OpenSession>& open = session->open;
    ReaderLock lock(open->graph->mutex);
    MG_ASSIGN_OR_RETURN(PartialRunHandle handle,
                        open->session->PartialRunSetup(feeds, fetches, targets));
    return std::unique_ptr<MG_PartialRun>(new MG_PartialRun{open, std::move(handle)});
  });
}

void MG_RunPart(MG_PartialRun* partial, const MG_RunOptions* options, const char* const* feed_names,
                MG_Tensor* const* feeds, int num_feeds, const char* const* fetch_names,
                MG_Tensor** fetched, int num_fetches, MG_Status* status) {
  ClearFetches(fetched, num_fetches);
  Guarded(status, [&] {
    return RunPart(*partial, options, feed_names, feeds, num_feeds, fetch_names, fetched,
                   num_fetches);
  });
}

void MG_DeletePartialRun(MG_PartialRun* partial) {
  if (partial != nullptr) partial->open->session->CancelPartialRun(partial->handle);
  delete partial;
}

// ---- Servers

MG_ServerOptions* MG_NewServerOptions(void) { return new MG_ServerOptions; }
void MG_DeleteServerOptions(MG_ServerOptions* options) { delete options; }

void MG_SetServerOption(MG_ServerOptions* options, const char* name, const char* value,
                        MG_Status* status) {
  Guarded(status, [&]() -> Status {
    MG_ASSIGN_OR_RETURN(const std::string option, Required(name, "the option's name"));
    MG_ASSIGN_OR_RETURN(const std::string text, Required(value, "the option's value"));
    return options->settings.Set(option, text);
  });
}

MG_Server* MG_NewServer(const char* cluster, const char* job, int task,
                        const MG_ServerOptions* options, MG_Status* status) {
  return GuardedMake<MG_Server>(status, [&]() -> Result<std::unique_ptr<MG_Server>> {
    MG_ASSIGN_OR_RETURN(const std::string spec, Required(cluster, "the cluster"));
    MG_ASSIGN_OR_RETURN(const std::string name, Required(job, "the job"));
    MG_ASSIGN_OR_RETURN(const ClusterSpec tasks, ClusterSpec::FromFlag(spec));
    c_api::ServerSettings settings;
    if (options != nullptr) settings = options->settings;
    MG_ASSIGN_OR_RETURN(settings.options.key, c_api::ReadKey(settings.key_file));
    auto server = std::make_unique<MG_Server>();
    MG_ASSIGN_OR_RETURN(server->server, HostTask(tasks, name, task, settings.options));
    server->target = TargetOf(server->server->address());
    return server;
  });
}

const char* MG_ServerTarget(const MG_Server* server) { return server->target.c_str(); }

int MG_JoinServer(MG_Server* server, int64_t milliseconds) {
  // Longer times could not be added to the clock's.
  const std::chrono::milliseconds time(std::min<int64_t>(milliseconds, 1'000'000'000));
  MutexLock lock(server->mutex);
  const auto stopped = [server]() MG_REQUIRES(server->mutex) { return server->stopped; };
  return server->stopped_changed.WaitUntil(server->mutex, std::chrono::steady_clock::now() + time,
                                           stopped)
             ? 1
             : 0;
}

void MG_StopServer(MG_Server* server, int64_t drain_milliseconds) {
  Guarded(nullptr, [&] {
    server->server->Stop(std::chrono::milliseconds(drain_milliseconds));
    MutexLock lock(server->mutex);
    server->stopped = true;
    server->stopped_changed.NotifyAll();
    return Status();
  });
}

void MG_DeleteServer(MG_Server* server) { delete server; }

// ---- Functions of the program

void MG_SetPyFuncHandler(MG_PyFuncHandler handler, void* arg) {
  SetPyFuncHandler([=](PyFuncCall call) -> Result<std::vector<Tensor>> {
    std::vector<MG_Tensor*> inputs;
    for (Tensor& input : call.inputs) inputs.push_back(Handle(std::move(input)).release());
    std::vector<MG_DataType> types;
    for (const DType type : call.types) types.push_back(static_cast<MG_DataType>(type));
    std::vector<MG_Tensor*> made(types.size());
    MG_Status status;
    handler(arg, call.token.c_str(), call.eager ? 1 : 0, inputs.data(),
            static_cast<int>(inputs.size()), types.data(), made.data(),
            static_cast<int>(made.size()), &status);
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < made.size(); ++i) {
      const std::unique_ptr<MG_Tensor> output(made[i]);
      if (output != nullptr) {
        outputs.push_back(std::move(output->tensor));
      } else {
        status.status.Update(
            Internal("the function '" + call.token + "' has set no output " + std::to_string(i)));
      }
    }
    if (!status.status.ok()) return status.status;
    return outputs;
  });
}

// ---- What the library has

MG_Table* MG_Ops(void) {
  std::vector<std::vector<std::string>> rows;
  for (const OpDef* op : DefaultRegistries().ops.All())
    rows.push_back({op->name(), op->ToString()});
  return NewTable(std::move(rows));
}
