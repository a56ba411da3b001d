// What all kernels that call oneDNN share: one engine, its threads held back so that only ours run,
// which instructions it uses, its errors as Statuses, and frames, which hold a primitive's
// arguments between calls.
#include "ops/cpu/onednn_cpu.h"

#include <dlfcn.h>

#include <new>
#include <string>

#include "base/log.h"

namespace monograph::ops::onednn {
namespace {

static_assert(DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP ||
                  DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_SEQ,
              "this oneDNN has threads that kernels cannot hold back: it must be built with OpenMP "
              "(-DDNNL_CPU_RUNTIME=OMP) or without threads (SEQ)");

// The OpenMP library that oneDNN brought into this process, whichever it is: no compiler needs one
// of its own to build us. Without threads there is none.
struct OpenMp {
  int (*get_max_threads)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT,
                                                               "omp_get_max_threads"));
  void (*set_num_threads)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT,
                                                                       "omp_set_num_threads"));
};

const OpenMp& Threads() {
  static const OpenMp found;
  return found;
}

}  // namespace

SingleThread::SingleThread()
    : saved_(Threads().get_max_threads == nullptr ? 1 : Threads().get_max_threads()) {
  if (saved_ != 1) Threads().set_num_threads(1);
}

SingleThread::~SingleThread() {
  if (saved_ != 1) Threads().set_num_threads(saved_);
}

const dnnl::engine& Engine() {
  static const dnnl::engine* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

namespace {

#if defined(__x86_64__)
// Whether oneDNN uses all instructions of `isa`.
bool Uses(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}
#endif

}  // namespace

bool IntelAvx512() {
#if defined(__x86_64__)
  static const bool is = __builtin_cpu_is("intel") != 0 && Uses(dnnl::cpu_isa::avx512_core);
  return is;
#else
  return false;
#endif
}

bool HasBfloat16() {
#if defined(__x86_64__)
  static const bool has = [] {
    const bool uses = Uses(dnnl::cpu_isa::avx512_core_bf16);
    if (!uses) LogInfo("bfloat16 is computed in float: the processor has no avx512_bf16");
    return uses;
  }();
  return has;
#else
  return false;
#endif
}

bool HasBfloat16Tiles() {
#if defined(__x86_64__)
  static const bool has = Uses(dnnl::cpu_isa::avx512_core_amx);
  return has;
#else
  return false;
#endif
}

namespace {

dnnl_stream_t Stream() {
  thread_local const dnnl::stream stream(Engine());
  return stream.get();
}

}  // namespace

Status FromException(const dnnl::error& error) {
  const std::string text = std::string("oneDNN: ") + error.what();
  switch (error.status) {
    case dnnl_out_of_memory:
      return ResourceExhausted(text);
    case dnnl_unimplemented:
      return Unimplemented(text);
    default:
      return Internal(text);
  }
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

struct Frame::Step {
  dnnl::primitive primitive;
  std::vector<dnnl_exec_arg_t> args;
};

Frame::Frame() = default;
Frame::~Frame() = default;

int Frame::Bound(const dnnl::memory::desc& desc) {
  memories_.push_back(dnnl::memory(desc, Engine(), DNNL_MEMORY_NONE));
  return static_cast<int>(memories_.size()) - 1;
}

int Frame::Owned(const dnnl::memory::desc& desc) {
  buffers_.push_back(Buffer::Allocate(HostAllocator(), desc.get_size()));
  if (!buffers_.back())
    throw dnnl::error(dnnl_out_of_memory, "no memory for an intermediate result");
  memories_.emplace_back(desc, Engine(), buffers_.back().data());
  return static_cast<int>(memories_.size()) - 1;
}

void Frame::Add(const dnnl::primitive& primitive, std::initializer_list<std::pair<int, int>> args,
                const dnnl::memory::desc& scratchpad) {
  Step step{primitive, {}};
  for (const auto& [arg, index] : args)
    step.args.push_back({arg, memories_[static_cast<size_t>(index)].get()});
  if (scratchpad.get_size() > 0) {
    step.args.push_back(
        {DNNL_ARG_SCRATCHPAD, memories_[static_cast<size_t>(Owned(scratchpad))].get()});
  }
  steps_.push_back(std::move(step));
}

void Frame::AddReorder(int from, int to) {
  const dnnl::reorder::primitive_desc desc(
      Engine(), memories_[static_cast<size_t>(from)].get_desc(), Engine(),
      memories_[static_cast<size_t>(to)].get_desc(), UserScratchpad());
  Add(dnnl::reorder(desc), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, desc.scratchpad_desc());
}

void Frame::Bind(int index, const void* data) {
  // Plain layouts have no padding to clear, so this only stores the pointer.
  dnnl_memory_set_data_handle(memories_[static_cast<size_t>(index)].get(), const_cast<void*>(data));
}

void* Frame::data(int index) const {
  return memories_[static_cast<size_t>(index)].get_data_handle();
}

Status Frame::Run() {
  dnnl_stream_t stream = Stream();
  for (const Step& step : steps_) {
    const dnnl_status_t status = dnnl_primitive_execute(
        step.primitive.get(), stream, static_cast<int>(step.args.size()), step.args.data());
    if (status != dnnl_success) return FromException(dnnl::error(status, "a primitive failed"));
  }
  return Status();
}

}  // namespace monograph::ops::onednn
