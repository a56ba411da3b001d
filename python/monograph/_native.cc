// The module monograph._native: <monograph/c_api.h> as Python classes, for the package around it.
//
// Calls that may wait or take locks give the interpreter up. A step that the main thread waits for
// looks at signals every 50 ms, so that Ctrl-C ends it. A fed array is held by the tensor around
// its memory and let go with it, on whichever thread that is; a fetched tensor shows its own memory
// by the buffer protocol.
#include <monograph/c_api.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

namespace {

template <typename Handle, void (*kDelete)(Handle*)>
struct Deleter {
  void operator()(Handle* handle) const { kDelete(handle); }
};
template <typename Handle, void (*kDelete)(Handle*)>
using Owned = std::unique_ptr<Handle, Deleter<Handle, kDelete>>;

using OwnedStatus = Owned<MG_Status, MG_DeleteStatus>;
using OwnedTable = Owned<MG_Table, MG_DeleteTable>;
using OwnedTensor = Owned<MG_Tensor, MG_DeleteTensor>;
using OwnedRunMetadata = Owned<MG_RunMetadata, MG_DeleteRunMetadata>;
using OwnedRunOptions = Owned<MG_RunOptions, MG_DeleteRunOptions>;
using OwnedSessionOptions = Owned<MG_SessionOptions, MG_DeleteSessionOptions>;
using OwnedServerOptions = Owned<MG_ServerOptions, MG_DeleteServerOptions>;
using Options = std::vector<std::pair<std::string, std::string>>;

// ---- Errors

// Raises monograph.errors' class for the code.
[[noreturn]] void Raise(const MG_Status* status) {
  const nb::object error = nb::module_::import_("monograph.errors")
                               .attr("_from_status")(static_cast<int>(MG_GetCode(status)),
                                                     MG_Message(status), MG_LostTask(status));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void Check(const OwnedStatus& status) {
  if (MG_GetCode(status.get()) != MG_OK) Raise(status.get());
}

OwnedStatus NewStatus() { return OwnedStatus(MG_NewStatus()); }

// `call` without the interpreter; a failure is raised.
template <typename Call>
auto Unlocked(const Call& call) {
  const OwnedStatus status = NewStatus();
  auto result = [&] {
    const nb::gil_scoped_release release;
    return call(status.get());
  }();
  Check(status);
  return result;
}

nb::list Rows(MG_Table* table, int columns) {
  const OwnedTable owned(table);
  nb::list rows;
  for (int row = 0; row < MG_TableRows(table); ++row) {
    nb::list texts;
    for (int column = 0; column < columns; ++column) texts.append(MG_TableText(table, row, column));
    rows.append(nb::tuple(texts));
  }
  return rows;
}

// Signals are handled by the main thread alone.
bool OnMainThread() {
  static const unsigned long main = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  return PyThread_get_thread_ident() == main;
}

// MG_SetPoll's: other than 0, with the exception set, if a signal raised one.
int RaisedBySignal(void*) {
  const nb::gil_scoped_acquire acquire;
  // A function that a node of the step called may have raised on this thread.
  return PyErr_Occurred() != nullptr ? -1 : PyErr_CheckSignals();
}

// ---- Tensors

class Tensor {
 public:
  // `fed`: its memory is that of a feed, somebody else's.
  explicit Tensor(OwnedTensor tensor, bool fed = false) : tensor_(std::move(tensor)), fed_(fed) {
    const int rank = MG_NumDims(get());
    for (int i = 0; i < rank; ++i) shape_.push_back(MG_Dim(get(), i));
    strides_.resize(shape_.size());
    auto stride = static_cast<Py_ssize_t>(MG_DataTypeSize(MG_TensorType(get())));
    for (size_t i = shape_.size(); i-- > 0;) {
      strides_[i] = stride;
      stride *= shape_[i];
    }
  }
  MG_Tensor* get() const { return tensor_.get(); }
  // Gives the tensor to the caller. Nothing can be done with this object any more.
  MG_Tensor* Release() { return tensor_.release(); }

  int dtype() const { return MG_TensorType(get()); }
  bool constant() const { return MG_TensorIsConstant(get()) != 0; }
  bool exclusive() const { return !fed_ && MG_TensorIsExclusive(get()) != 0; }
  nb::tuple shape() const {
    nb::list dims;
    for (const Py_ssize_t dim : shape_) dims.append(dim);
    return nb::tuple(dims);
  }
  nb::list strings() const {
    nb::list list;
    for (int64_t i = 0; i < MG_TensorElements(get()); ++i) {
      size_t length = 0;
      const char* text = MG_TensorString(get(), i, &length);
      if (text == nullptr) throw nb::type_error("not a tensor of strings");
      list.append(nb::bytes(text, length));
    }
    return list;
  }

  // The letter of the struct module for the elements, with NumPy's "Z" before it for complex ones;
  // nullptr if it has none. bfloat16 is shown as 16 bits without a sign, a quantized type as its
  // integers.
  const char* format() const {
    switch (MG_TensorType(get())) {
      case MG_FLOAT:
        return "f";
      case MG_DOUBLE:
        return "d";
      case MG_COMPLEX64:
        return "Zf";
      case MG_COMPLEX128:
        return "Zd";
      case MG_QINT8:
        return "b";
      case MG_QUINT8:
        return "B";
      case MG_QINT16:
        return "h";
      case MG_QUINT16:
        return "H";
      case MG_QINT32:
      case MG_INT32:
        return "i";
      case MG_UINT8:
        return "B";
      case MG_INT16:
        return "h";
      case MG_INT8:
        return "b";
      case MG_INT64:
        return "l";
      case MG_BOOL:
        return "?";
      case MG_BFLOAT16:
        return "H";
      case MG_UINT16:
        return "H";
      case MG_HALF:
        return "e";
      case MG_UINT32:
        return "I";
      case MG_UINT64:
        return "L";
      default:
        return nullptr;
    }
  }

  static int GetBuffer(PyObject* self, Py_buffer* view, int flags) noexcept {
    const Tensor& tensor = *nb::inst_ptr<Tensor>(self);
    const char* const format = tensor.format();
    if (format == nullptr) {
      PyErr_Format(PyExc_BufferError, "a tensor of %s has no buffer",
                   MG_DataTypeName(static_cast<MG_DataType>(tensor.dtype())));
      return -1;
    }
    static char nothing[1];
    void* const data = MG_TensorData(tensor.get());
    *view = {};
    view->buf = data == nullptr ? nothing : data;
    view->len = static_cast<Py_ssize_t>(MG_TensorBytes(tensor.get()));
    view->itemsize = static_cast<Py_ssize_t>(MG_DataTypeSize(MG_TensorType(tensor.get())));
    view->readonly = tensor.exclusive() ? 0 : 1;
    if ((flags & PyBUF_WRITABLE) != 0 && view->readonly != 0) {
      PyErr_SetString(PyExc_BufferError, "others share this tensor's memory: it is read-only");
      return -1;
    }
    view->ndim = static_cast<int>(tensor.shape_.size());
    if ((flags & PyBUF_FORMAT) != 0) view->format = const_cast<char*>(format);
    if ((flags & PyBUF_ND) != 0) view->shape = const_cast<Py_ssize_t*>(tensor.shape_.data());
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES)
      view->strides = const_cast<Py_ssize_t*>(tensor.strides_.data());
    view->obj = Py_NewRef(self);
    return 0;
  }

 private:
  OwnedTensor tensor_;
  bool fed_;
  std::vector<Py_ssize_t> shape_, strides_;
};

// Whether the memory of `tensor` is part of that of `whole`.
bool LiesIn(const MG_Tensor* tensor, const MG_Tensor* whole) {
  const auto* const data = static_cast<const char*>(MG_TensorData(tensor));
  const auto* const begin = static_cast<const char*>(MG_TensorData(whole));
  return data != nullptr && data >= begin && data < begin + MG_TensorBytes(whole);
}

// The type whose elements a buffer of this format has; 0: none.
int TypeOfFormat(const char* format) {
  if (format == nullptr) return MG_UINT8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const bool complex = *format == 'Z';
  if (complex) ++format;
  if (*format == 0 || format[1] != 0) return 0;
  if (complex) return *format == 'f' ? MG_COMPLEX64 : *format == 'd' ? MG_COMPLEX128 : 0;
  switch (*format) {
    case 'f':
      return MG_FLOAT;
    case 'd':
      return MG_DOUBLE;
    case 'e':
      return MG_HALF;
    case '?':
      return MG_BOOL;
    case 'b':
      return MG_INT8;
    case 'B':
      return MG_UINT8;
    case 'h':
      return MG_INT16;
    case 'H':
      return MG_UINT16;
    case 'i':
      return MG_INT32;
    case 'I':
      return MG_UINT32;
    case 'l':
    case 'q':
      return MG_INT64;
    case 'L':
    case 'Q':
      return MG_UINT64;
    default:
      return 0;
  }
}

void ReleaseBuffer(void*, size_t, void* arg) {
  // At the end of the process nobody needs the array any more.
  if (!Py_IsInitialized()) return;
  const nb::gil_scoped_acquire acquire;
  auto* const view = static_cast<Py_buffer*>(arg);
  PyBuffer_Release(view);
  delete view;
}

// What the buffer of an array of this type has.
int InBuffer(int type) {
  switch (type) {
    case MG_BFLOAT16:
    case MG_QUINT16:
      return MG_UINT16;
    case MG_QINT8:
      return MG_INT8;
    case MG_QUINT8:
      return MG_UINT8;
    case MG_QINT16:
      return MG_INT16;
    case MG_QINT32:
      return MG_INT32;
    default:
      return type;
  }
}

// A tensor around the memory of an object with the buffer protocol; none if its elements do not lie
// row by row, are not of this type, or not aligned.
OwnedTensor TensorAround(nb::handle object, int type) {
  if (!PyObject_CheckBuffer(object.ptr())) return nullptr;
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), view.get(), PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return nullptr;
  }
  const bool fits = TypeOfFormat(view->format) == InBuffer(type);
  const bool complex = type == MG_COMPLEX64 || type == MG_COMPLEX128;
  const auto number = static_cast<uintptr_t>(view->itemsize) / (complex ? 2 : 1);
  if (!fits || number == 0 || reinterpret_cast<uintptr_t>(view->buf) % number != 0) {
    PyBuffer_Release(view.get());
    return nullptr;
  }
  const std::vector<int64_t> dims(view->shape, view->shape + view->ndim);
  const OwnedStatus status = NewStatus();
  OwnedTensor tensor(MG_NewTensor(static_cast<MG_DataType>(type), dims.data(), view->ndim,
                                  view->buf, static_cast<size_t>(view->len), ReleaseBuffer,
                                  view.get(), status.get()));
  if (tensor == nullptr) {
    PyBuffer_Release(view.get());
    Raise(status.get());
  }
  (void)view.release();  // ReleaseBuffer's
  return tensor;
}

Tensor EmptyTensor(int dtype, const std::vector<int64_t>& shape) {
  const OwnedStatus status = NewStatus();
  OwnedTensor tensor(MG_AllocateTensor(static_cast<MG_DataType>(dtype), shape.data(),
                                       static_cast<int>(shape.size()), status.get()));
  Check(status);
  return Tensor(std::move(tensor));
}

Tensor StringTensor(const std::vector<nb::bytes>& values, const std::vector<int64_t>& shape) {
  std::vector<const char*> texts;
  std::vector<size_t> lengths;
  int64_t elements = 1;
  for (const int64_t dim : shape) elements *= dim;
  if (elements != static_cast<int64_t>(values.size()))
    throw nb::value_error("a string for every element of the shape is needed");
  for (const nb::bytes& value : values) {
    texts.push_back(value.c_str());
    lengths.push_back(value.size());
  }
  const OwnedStatus status = NewStatus();
  OwnedTensor tensor(MG_NewStringTensor(shape.data(), static_cast<int>(shape.size()), texts.data(),
                                        lengths.data(), status.get()));
  Check(status);
  return Tensor(std::move(tensor));
}

// ---- Graphs

class Graph {
 public:
  // A session that is still connecting when the user gives up has a share.
  const std::shared_ptr<MG_Graph>& shared() const { return graph_; }

  void Import(nb::bytes graph_def) {
    Unlocked([&](MG_Status* status) {
      MG_GraphImport(graph_.get(), graph_def.c_str(), graph_def.size(), status);
      return 0;
    });
  }
  void ImportFile(const std::string& path) {
    Unlocked([&](MG_Status* status) {
      MG_GraphImportFile(graph_.get(), path.c_str(), status);
      return 0;
    });
  }
  nb::list Nodes() const { return Rows(MG_GraphNodes(graph_.get()), 3); }
  // Type and shape, None for an unknown rank.
  nb::tuple Find(const std::string& name) const {
    constexpr int kMost = 16;
    MG_DataType type{};
    int64_t dims[kMost];
    int rank = 0;
    Unlocked([&](MG_Status* status) {
      MG_GraphTensor(graph_.get(), name.c_str(), &type, dims, kMost, &rank, status);
      return 0;
    });
    if (rank < 0) return nb::make_tuple(static_cast<int>(type), nb::none());
    nb::list shape;
    for (int i = 0; i < rank; ++i) shape.append(dims[i]);
    return nb::make_tuple(static_cast<int>(type), nb::tuple(shape));
  }

 private:
  std::shared_ptr<MG_Graph> graph_{MG_NewGraph(), MG_DeleteGraph};
};

// ---- Sessions

// Opens a session on a thread of its own, so that Ctrl-C can end the wait for daemons.
class Opening {
 public:
  Opening(std::shared_ptr<MG_Graph> graph, OwnedSessionOptions options)
      : graph_(std::move(graph)), options_(std::move(options)) {}

  static std::shared_ptr<MG_Session> Wait(const std::shared_ptr<Opening>& self) {
    std::thread([self] { self->Open(); }).detach();
    std::unique_lock lock(self->mutex_);
    while (
        !self->done_.wait_for(lock, std::chrono::milliseconds(50), [&] { return self->over_; })) {
      lock.unlock();
      if (RaisedBySignal(nullptr) != 0) return nullptr;  // what it opens goes with it
      lock.lock();
    }
    return self->session_;
  }
  const MG_Status* status() const { return status_.get(); }

 private:
  void Open() {
    std::shared_ptr<MG_Session> session(MG_NewSession(graph_.get(), options_.get(), status_.get()),
                                        MG_DeleteSession);
    const std::lock_guard lock(mutex_);
    session_ = std::move(session);
    over_ = true;
    done_.notify_all();
  }

  std::shared_ptr<MG_Graph> graph_;
  OwnedSessionOptions options_;
  OwnedStatus status_ = NewStatus();
  std::mutex mutex_;
  std::condition_variable done_;
  bool over_ = false;
  std::shared_ptr<MG_Session> session_;
};

class RunMetadata {
 public:
  MG_RunMetadata* get() const { return metadata_.get(); }
  const char* trace_json() const { return MG_TraceJson(get()); }
  const char* trace_error() const { return MG_TraceError(get()); }

 private:
  OwnedRunMetadata metadata_{MG_NewRunMetadata()};
};

std::vector<const char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

// The tensors that a step is fed.
class Feeds {
 public:
  // `value` is a Tensor, or what `convert` makes one of, given the name, the value and the type, if
  // the value's memory cannot be used as it is.
  void Add(const std::string& name, nb::object value, int type, const nb::callable& convert) {
    if (!nb::isinstance<Tensor>(value)) {
      OwnedTensor around = type == MG_STRING ? nullptr : TensorAround(value, type);
      if (around == nullptr) {
        value = convert(name, value, type);
        if (!nb::isinstance<Tensor>(value)) around = TensorAround(value, type);
      }
      if (around != nullptr) {
        tensors_.push_back(around.get());
        made_.push_back(std::move(around));
        return;
      }
    }
    tensors_.push_back(nb::cast<const Tensor&>(value).get());
    kept_.push_back(std::move(value));
  }
  MG_Tensor* const* data() const { return tensors_.data(); }
  int size() const { return static_cast<int>(tensors_.size()); }
  // Whether a tensor shows memory of theirs.
  bool Hold(const MG_Tensor* tensor) const {
    return std::ranges::any_of(tensors_, [=](auto* feed) { return LiesIn(tensor, feed); });
  }

 private:
  std::vector<OwnedTensor> made_;
  std::vector<nb::object> kept_;
  std::vector<MG_Tensor*> tensors_;
};

// The run of a step, or of a part of one: `run` is given options, room for the fetches, and a
// status. Raises what a signal's handler has raised meanwhile, and else the step's failure.
template <typename Run>
nb::list RunStep(const Feeds& feeds, size_t fetches, int64_t timeout_ms, RunMetadata* metadata,
                 const Run& run) {
  const bool main = OnMainThread();
  OwnedRunOptions options;
  if (main || timeout_ms >= 0 || metadata != nullptr) {
    options.reset(MG_NewRunOptions());
    MG_SetTimeout(options.get(), timeout_ms);
    if (main) MG_SetPoll(options.get(), RaisedBySignal, nullptr);
    if (metadata != nullptr) MG_SetRunMetadata(options.get(), metadata->get());
  }
  std::vector<MG_Tensor*> fetched(fetches);
  const OwnedStatus status = NewStatus();
  {
    const nb::gil_scoped_release release;
    run(options.get(), fetched.data(), status.get());
  }
  nb::list values;
  for (MG_Tensor* const tensor : fetched) {
    if (tensor != nullptr) values.append(Tensor(OwnedTensor(tensor), feeds.Hold(tensor)));
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  Check(status);
  return values;
}

class Callable {
 public:
  Callable(std::shared_ptr<MG_Session> session, MG_Callable* callable, std::vector<int> types,
           std::vector<std::string> feeds, size_t fetches)
      : session_(std::move(session)),
        callable_(callable, MG_DeleteCallable),
        types_(std::move(types)),
        names_(std::move(feeds)),
        fetches_(fetches) {}
  ~Callable() {
    const nb::gil_scoped_release release;
    callable_.reset();
    session_.reset();
  }
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;

  // The step is recorded in `metadata`, if there is one.
  nb::list Run(nb::sequence feeds, int64_t timeout_ms, const nb::callable& convert,
               RunMetadata* metadata) const {
    if (nb::len(feeds) != types_.size()) {
      throw nb::value_error(
          ("a callable of " + std::to_string(types_.size()) + " feeds is given another number")
              .c_str());
    }
    Feeds tensors;
    for (size_t i = 0; i < types_.size(); ++i) tensors.Add(names_[i], feeds[i], types_[i], convert);
    return RunStep(tensors, fetches_, timeout_ms, metadata,
                   [&](const MG_RunOptions* options, MG_Tensor** fetched, MG_Status* status) {
                     MG_RunCallable(callable_.get(), options, tensors.data(), tensors.size(),
                                    fetched, static_cast<int>(fetches_), status);
                   });
  }

 private:
  std::shared_ptr<MG_Session> session_;
  std::unique_ptr<MG_Callable, void (*)(MG_Callable*)> callable_;
  std::vector<int> types_;
  std::vector<std::string> names_;
  size_t fetches_;
};

class PartialRun {
 public:
  PartialRun(std::shared_ptr<MG_Session> session, MG_PartialRun* partial,
             std::vector<std::string> feeds, std::vector<int> types)
      : session_(std::move(session)), partial_(partial, MG_DeletePartialRun) {
    for (size_t i = 0; i < feeds.size(); ++i) types_.emplace(std::move(feeds[i]), types[i]);
  }
  ~PartialRun() {
    const nb::gil_scoped_release release;
    partial_.reset();
    session_.reset();
  }
  PartialRun(const PartialRun&) = delete;
  PartialRun& operator=(const PartialRun&) = delete;

  nb::list Run(const std::vector<std::string>& names, nb::sequence values,
               const std::vector<std::string>& fetches, int64_t timeout_ms,
               const nb::callable& convert) const {
    Feeds tensors;
    for (size_t i = 0; i < names.size(); ++i) {
      const auto type = types_.find(names[i]);
      // The library says what is wrong with a name that the setup had not.
      tensors.Add(names[i], values[i], type == types_.end() ? MG_FLOAT : type->second, convert);
    }
    const auto fed = Pointers(names), fetched_names = Pointers(fetches);
    return RunStep(tensors, fetches.size(), timeout_ms, nullptr,
                   [&](const MG_RunOptions* options, MG_Tensor** fetched, MG_Status* status) {
                     MG_RunPart(partial_.get(), options, fed.data(), tensors.data(), tensors.size(),
                                fetched_names.data(), fetched, static_cast<int>(fetches.size()),
                                status);
                   });
  }

 private:
  std::shared_ptr<MG_Session> session_;
  std::unique_ptr<MG_PartialRun, void (*)(MG_PartialRun*)> partial_;
  std::map<std::string, int> types_;
};

class Session {
 public:
  Session(const Graph& graph, const Options& options) : graph_(graph.shared()) {
    OwnedSessionOptions set(MG_NewSessionOptions());
    const OwnedStatus status = NewStatus();
    for (const auto& [name, value] : options) {
      MG_SetSessionOption(set.get(), name.c_str(), value.c_str(), status.get());
      Check(status);
    }
    if (OnMainThread()) {
      const auto opening = std::make_shared<Opening>(graph_, std::move(set));
      {
        const nb::gil_scoped_release release;
        session_ = Opening::Wait(opening);
      }
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      if (session_ == nullptr) Raise(opening->status());
    } else {
      session_.reset(
          Unlocked([&](MG_Status* made) { return MG_NewSession(graph_.get(), set.get(), made); }),
          MG_DeleteSession);
    }
  }
  ~Session() {
    const nb::gil_scoped_release release;
    session_.reset();
    graph_.reset();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  std::unique_ptr<Callable> MakeCallable(const std::vector<std::string>& feeds,
                                         const std::vector<std::string>& fetches,
                                         const std::vector<std::string>& targets) const {
    const auto fed = Pointers(feeds), fetched = Pointers(fetches), run = Pointers(targets);
    std::vector<int> types;
    MG_Callable* const callable = Unlocked([&](MG_Status* status) {
      MG_Callable* made = MG_MakeCallable(session_.get(), fed.data(), static_cast<int>(fed.size()),
                                          fetched.data(), static_cast<int>(fetched.size()),
                                          run.data(), static_cast<int>(run.size()), status);
      if (made != nullptr) types = TypesOf(fed, status);
      return made;
    });
    return std::make_unique<Callable>(session_, callable, std::move(types), feeds, fetches.size());
  }
  std::unique_ptr<PartialRun> PartialRunSetup(const std::vector<std::string>& feeds,
                                              const std::vector<std::string>& fetches,
                                              const std::vector<std::string>& targets) const {
    const auto fed = Pointers(feeds), fetched = Pointers(fetches), run = Pointers(targets);
    std::vector<int> types;
    MG_PartialRun* const partial = Unlocked([&](MG_Status* status) {
      MG_PartialRun* made = MG_PartialRunSetup(
          session_.get(), fed.data(), static_cast<int>(fed.size()), fetched.data(),
          static_cast<int>(fetched.size()), run.data(), static_cast<int>(run.size()), status);
      if (made != nullptr) types = TypesOf(fed, status);
      return made;
    });
    return std::make_unique<PartialRun>(session_, partial, feeds, types);
  }
  void Reset(const std::vector<std::string>& containers) const {
    const auto names = Pointers(containers);
    Unlocked([&](MG_Status* status) {
      MG_ResetSession(session_.get(), names.data(), static_cast<int>(names.size()), status);
      return 0;
    });
  }
  void Close() const {
    Unlocked([&](MG_Status* status) {
      MG_CloseSession(session_.get(), status);
      return 0;
    });
  }
  nb::list Devices() const { return Rows(MG_SessionDevices(session_.get()), 3); }

 private:
  std::vector<int> TypesOf(const std::vector<const char*>& tensors, MG_Status* status) const {
    std::vector<int> types;
    for (const char* const tensor : tensors) {
      MG_DataType type{};
      int rank = 0;
      MG_GraphTensor(graph_.get(), tensor, &type, nullptr, 0, &rank, status);
      types.push_back(type);
    }
    return types;
  }

  std::shared_ptr<MG_Graph> graph_;
  std::shared_ptr<MG_Session> session_;
};

// ---- Servers

class Server {
 public:
  Server(const std::string& cluster, const std::string& job, int task, const Options& options) {
    const OwnedServerOptions set(MG_NewServerOptions());
    const OwnedStatus status = NewStatus();
    for (const auto& [name, value] : options) {
      MG_SetServerOption(set.get(), name.c_str(), value.c_str(), status.get());
      Check(status);
    }
    server_.reset(Unlocked([&](MG_Status* made) {
      return MG_NewServer(cluster.c_str(), job.c_str(), task, set.get(), made);
    }));
  }
  ~Server() {
    const nb::gil_scoped_release release;
    server_.reset();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const char* target() const { return MG_ServerTarget(server_.get()); }
  bool Join(int64_t milliseconds) const {
    const nb::gil_scoped_release release;
    return MG_JoinServer(server_.get(), milliseconds) != 0;
  }
  void Stop(int64_t drain_ms) const {
    const nb::gil_scoped_release release;
    MG_StopServer(server_.get(), drain_ms);
  }

 private:
  Owned<MG_Server, MG_DeleteServer> server_;
};

// ---- Functions that nodes call

// A tensor of the library's own with the value that a function returned: a Tensor, or an array of
// the right type, which the function may go on to change.
MG_Tensor* Output(nb::handle value, int type, MG_Status* status) {
  if (nb::isinstance<Tensor>(value)) return nb::cast<Tensor&>(value).Release();
  const OwnedTensor around = TensorAround(value, type);
  if (around == nullptr) {
    MG_SetStatus(status, MG_INTERNAL, "a function's value is no array of the output's type");
    return nullptr;
  }
  std::vector<int64_t> dims;
  for (int i = 0; i < MG_NumDims(around.get()); ++i) dims.push_back(MG_Dim(around.get(), i));
  MG_Tensor* const tensor = MG_AllocateTensor(static_cast<MG_DataType>(type), dims.data(),
                                              static_cast<int>(dims.size()), status);
  const size_t bytes = MG_TensorBytes(around.get());
  if (tensor != nullptr && bytes > 0)
    std::memcpy(MG_TensorData(tensor), MG_TensorData(around.get()), bytes);
  return tensor;
}

// MG_PyFuncHandler. `caller` returns a code and values, or a code and a text. What is no Exception
// (KeyboardInterrupt) it lets through: on the main thread, which is inside a step then, that is
// raised when the step has ended.
void CallFunction(void* caller, const char* token, int eager, MG_Tensor* const* inputs,
                  int num_inputs, const MG_DataType* types, MG_Tensor** outputs, int num_outputs,
                  MG_Status* status) {
  if (!Py_IsInitialized()) {
    for (int i = 0; i < num_inputs; ++i) MG_DeleteTensor(inputs[i]);
    return MG_SetStatus(status, MG_UNAVAILABLE, "the Python interpreter has ended");
  }
  const nb::gil_scoped_acquire acquire;
  try {
    nb::list arguments, wanted;
    for (int i = 0; i < num_inputs; ++i) arguments.append(Tensor(OwnedTensor(inputs[i])));
    for (int i = 0; i < num_outputs; ++i) wanted.append(static_cast<int>(types[i]));
    const nb::tuple answer = nb::cast<nb::tuple>(
        nb::handle(static_cast<PyObject*>(caller))(token, eager != 0, arguments, wanted));
    const auto code = nb::cast<int>(answer[0]);
    if (code != MG_OK) {
      const auto text = nb::cast<std::string>(answer[1]);
      return MG_SetStatus(status, static_cast<MG_Code>(code), text.c_str());
    }
    for (int i = 0; i < num_outputs; ++i) {
      outputs[i] = Output(answer[1][i], types[i], status);
      if (outputs[i] == nullptr) return;
    }
  } catch (nb::python_error& error) {
    MG_SetStatus(status, MG_CANCELLED, error.what());
    if (OnMainThread()) error.restore();
  } catch (const std::exception& error) {
    MG_SetStatus(status, MG_INTERNAL, error.what());
  }
}

PyType_Slot kTensorSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(Tensor::GetBuffer)},
                              {0, nullptr}};

}  // namespace

NB_MODULE(_native, m) {
  // Objects that live to the end of the process, as in modules' globals, are no leaks.
  nb::set_leak_warnings(false);
  nb::class_<Tensor>(m, "Tensor", nb::type_slots(kTensorSlots))
      .def_prop_ro("dtype", &Tensor::dtype)
      .def_prop_ro("shape", &Tensor::shape)
      .def_prop_ro("exclusive", &Tensor::exclusive)
      .def_prop_ro("constant", &Tensor::constant)
      .def("strings", &Tensor::strings);
  m.def("string_tensor", &StringTensor, "values"_a, "shape"_a);
  m.def("empty_tensor", &EmptyTensor, "dtype"_a, "shape"_a);
  nb::class_<Graph>(m, "Graph")
      .def(nb::init<>())
      .def("import_bytes", &Graph::Import)
      .def("import_file", &Graph::ImportFile)
      .def("nodes", &Graph::Nodes)
      .def("find", &Graph::Find);
  nb::class_<RunMetadata>(m, "RunMetadata")
      .def(nb::init<>())
      .def_prop_ro("trace_json", &RunMetadata::trace_json)
      .def_prop_ro("trace_error", &RunMetadata::trace_error);
  nb::class_<Callable>(m, "Callable")
      .def("run", &Callable::Run, "feeds"_a, "timeout_ms"_a, "convert"_a,
           "metadata"_a.none() = nb::none());
  nb::class_<PartialRun>(m, "PartialRun").def("run", &PartialRun::Run);
  nb::class_<Session>(m, "Session")
      .def(nb::init<const Graph&, const Options&>())
      .def("make_callable", &Session::MakeCallable)
      .def("partial_run_setup", &Session::PartialRunSetup)
      .def("reset", &Session::Reset)
      .def("close", &Session::Close)
      .def("devices", &Session::Devices);
  nb::class_<Server>(m, "Server")
      .def(nb::init<const std::string&, const std::string&, int, const Options&>())
      .def_prop_ro("target", &Server::target)
      .def("join", &Server::Join)
      .def("stop", &Server::Stop);
  // To the end of the process.
  m.def("set_py_func_handler",
        [](nb::callable caller) { MG_SetPyFuncHandler(CallFunction, caller.release().ptr()); });
  m.def("ops", [] { return Rows(MG_Ops(), 2); });
  m.def("version", &MG_Version);
}
