// Launches: threads, barriers, calls, and what touches memory.
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "tests/gpu/emulated/ptx_code.h"

namespace monograph::ptx {
namespace {

constexpr unsigned char kPoison = 0xcb;          // what nobody has written yet
constexpr uint64_t kMostBranches = 200'000'000;  // of a thread: it does not end
constexpr uint32_t kMostThreads = 1024;          // of a block
constexpr size_t kMostSharedBytes = 227 << 10;   // of a block

std::string Hex(uint64_t x) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(x));
  return text;
}

std::string Demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = text == nullptr ? name : text;
  std::free(text);
  return result;
}

std::unique_ptr<std::max_align_t[]> AlignedBytes(size_t bytes) {
  return std::make_unique<std::max_align_t[]>(bytes / sizeof(std::max_align_t) + 1);
}

// Who has touched a byte of shared memory since the last barrier. Two threads must not, but to
// read.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) : bytes_(bytes), data_(AlignedBytes(bytes)), users_(bytes) {}

  void BeginBlock() {
    std::memset(data_.get(), kPoison, bytes_);
    PassBarrier();
  }
  void PassBarrier() { ++epoch_; }

  size_t bytes() const { return bytes_; }
  char* data() { return reinterpret_cast<char*>(data_.get()); }
  // nullptr, or what is wrong about it.
  const char* Touch(size_t begin, size_t bytes, uint32_t thread, bool write) {
    const uint64_t me = epoch_ * kThreads + thread, many = epoch_ * kThreads + kMany;
    for (size_t i = begin; i < begin + bytes; ++i) {
      User& user = users_[i];
      const bool foreign_write = user.writer / kThreads == epoch_ && user.writer != me;
      const bool read = user.reader / kThreads == epoch_, foreign_read = read && user.reader != me;
      if (foreign_write) {
        return write ? "another thread wrote it since the last barrier"
                     : "another thread wrote it, and no barrier lies between";
      }
      if (write && foreign_read) return "another thread read it since the last barrier";
      if (write) {
        user.writer = me;
      } else {
        user.reader = foreign_read ? many : me;
      }
    }
    return nullptr;
  }

 private:
  static constexpr uint64_t kThreads = 2048, kMany = 2047;
  struct User {
    uint64_t writer = 0, reader = 0;  // epoch * kThreads + thread
  };
  const size_t bytes_;
  const std::unique_ptr<std::max_align_t[]> data_;
  std::vector<User> users_;
  uint64_t epoch_ = 1;
};

}  // namespace

// What a block's threads share.
class Block {
 public:
  Block(const Kernel& kernel, const LaunchDims& dims, void* const* args,
        const LaunchOptions& options)
      : kernel_(kernel),
        dims_(dims),
        options_(options),
        threads_(size_t{dims.block[0]} * dims.block[1] * dims.block[2]),
        parameters_(AlignedBytes(kernel.code->parameter_bytes)),
        shared_(kernel.shared_bytes + dims.dynamic_shared) {
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      const Parameter& p = kernel.parameters[i];
      std::memcpy(parameters() + p.offset, args[i], p.bytes);
    }
  }

  Status RunAll();

  char* parameters() { return reinterpret_cast<char*>(parameters_.get()); }
  SharedMemory& shared() { return shared_; }
  bool programmatic() const { return options_.programmatic; }
  const Kernel& kernel() const { return kernel_; }
  std::string ThreadName(uint32_t index) const {
    return "block " + Name(block_, dims_.grid) + ", thread " + Name(index, dims_.block);
  }
  // Whether the device's memory holds these bytes.
  bool Holds(const char* at, size_t bytes) {
    if (!options_.memory) return true;
    const auto inside = [&](std::span<const std::byte> block) {
      const char* const begin = reinterpret_cast<const char*>(block.data());
      return at >= begin && bytes <= block.size() &&
             static_cast<size_t>(at - begin) <= block.size() - bytes;
    };
    for (const auto& block : known_) {
      if (inside(block)) return true;
    }
    const std::span<const std::byte> found = options_.memory(at);
    if (!inside(found)) return false;
    known_[next_known_++ % std::size(known_)] = found;
    return true;
  }

 private:
  static std::string Name(size_t i, const uint32_t (&size)[3]) {
    return "(" + std::to_string(i % size[0]) + ", " + std::to_string(i / size[0] % size[1]) + ", " +
           std::to_string(i / size[0] / size[1]) + ")";
  }
  size_t Ordered(size_t k, size_t n) const { return options_.order ? options_.order(k, n) : k; }
  void Start(Thread& thread, size_t index) const;
  Status RunBlock();
  Status RunToBarrier(bool* ended);

  const Kernel& kernel_;
  const LaunchDims& dims_;
  const LaunchOptions& options_;
  const size_t threads_;
  const std::unique_ptr<std::max_align_t[]> parameters_;
  SharedMemory shared_;
  size_t block_ = 0;
  std::vector<Thread> running_;  // all of a block; without barriers one does for all
  std::span<const std::byte> known_[4];
  size_t next_known_ = 0;
};

std::string Thread::Where(const Instruction& at) const {
  const std::string_view text = frame().function->text;
  const auto line = 1 + std::count(text.begin(), text.begin() + at.at, '\n');
  return "line " + std::to_string(line) + " (" +
         std::string(text.substr(at.at, text.find('\n', at.at) - at.at)) + ")";
}

void Thread::Fail(const Instruction& at, const std::string& why) {
  state = State::kFailed;
  error = Internal(Demangled(block_->kernel().name) + ", " + block_->ThreadName(index_) + ", " +
                   Where(at) + ": " + why);
}

Thread::Frame Thread::MakeFrame(const Function& function) const {
  Frame frame{&function, nullptr, std::make_unique<uint64_t[]>(function.registers),
              AlignedBytes(function.local_bytes)};
  std::memset(frame.registers.get(), kPoison, function.registers * sizeof(uint64_t));
  std::memset(frame.local.get(), kPoison, function.local_bytes);
  for (const Constant& constant : function.constants) {
    // Shared memory has addresses of 32 bits, from 0.
    const char* const base = constant.space == Space::kParam   ? block_->parameters()
                             : constant.space == Space::kLocal ? frame.local_begin()
                                                               : nullptr;
    frame.registers[constant.reg] = reinterpret_cast<uint64_t>(base) + constant.value;
  }
  return frame;
}

void Thread::Prepare(Block* block, const Function& kernel) {
  block_ = block;
  frames_.push_back(MakeFrame(kernel));
}

void Thread::Start(uint32_t index, const uint32_t (&specials)[kSpecials]) {
  index_ = index;
  registers_ = frame().registers.get();
  for (uint32_t i = 0; i < kSpecials; ++i) registers_[i] = specials[i];
  next_ = frame().function->code.data();
  branches_left_ = kMostBranches;
  ahead = block_->programmatic();
  state = State::kRunning;
}

void Thread::Enter(const Call& call) {
  const Function& callee = *call.callee;
  Frame next = MakeFrame(callee);
  for (uint32_t i = 0; i < kSpecials; ++i) next.registers[i] = registers_[i];
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    std::memcpy(next.local_begin() + callee.parameters[i].offset,
                frame().local_begin() + call.arguments[i].offset, call.arguments[i].bytes);
  }
  frame().next = next_;
  frames_.push_back(std::move(next));
  registers_ = frame().registers.get();
  next_ = callee.code.data();
}

void Thread::Leave() {
  const Frame done = std::move(frames_.back());
  frames_.pop_back();
  registers_ = frame().registers.get();
  next_ = frame().next;
  const Call& call = frame().function->calls[static_cast<size_t>(last().offset)];
  for (size_t i = 0; i < call.results.size(); ++i) {
    std::memcpy(frame().local_begin() + call.results[i].offset,
                done.local_begin() + done.function->results[i].offset, call.results[i].bytes);
  }
}

void Thread::Branch(const Instruction& at) {
  if (--branches_left_ == 0) return Fail(at, "it does not come to its end");
  next_ = frame().function->code.data() + at.offset;
}

void Thread::Run() {
  while (state == State::kRunning) {
    const Instruction& next = *next_++;
    if (next.guard >= 0 && Get<bool>(static_cast<uint32_t>(next.guard)) != next.guard_value)
      continue;
    next.step(*this, next);
  }
}

void Block::Start(Thread& thread, size_t index) const {
  const auto& [x, y, z] = dims_.block;
  const auto& [width, height, depth] = dims_.grid;
  const auto at = [](size_t i) { return static_cast<uint32_t>(i); };
  thread.Start(at(index),
               {at(index % x), at(index / x % y), at(index / x / y), x, y, z, at(block_ % width),
                at(block_ / width % height), at(block_ / width / height), width, height, depth});
}

Status Block::RunAll() {
  const size_t blocks = size_t{dims_.grid[0]} * dims_.grid[1] * dims_.grid[2];
  running_.resize(kernel_.code->has_barrier ? threads_ : 1);
  for (Thread& thread : running_) thread.Prepare(this, *kernel_.code);
  for (size_t k = 0; k < blocks; ++k) {
    block_ = Ordered(k, blocks);
    shared_.BeginBlock();
    MG_RETURN_IF_ERROR(RunBlock());
  }
  return Status();
}

Status Block::RunBlock() {
  if (!kernel_.code->has_barrier) {
    for (size_t k = 0; k < threads_; ++k) {
      Start(running_[0], Ordered(k, threads_));
      running_[0].Run();
      if (running_[0].state == Thread::State::kFailed) return running_[0].error;
    }
    return Status();
  }
  for (size_t i = 0; i < threads_; ++i) Start(running_[i], i);
  for (bool ended = false; !ended; shared_.PassBarrier()) {
    MG_RETURN_IF_ERROR(RunToBarrier(&ended));
  }
  return Status();
}

Status Block::RunToBarrier(bool* ended) {
  for (size_t k = 0; k < threads_; ++k) {
    Thread& thread = running_[Ordered(k, threads_)];
    thread.Run();
    if (thread.state == Thread::State::kFailed) return thread.error;
  }
  *ended = running_[0].state == Thread::State::kEnded;
  for (Thread& thread : running_) {
    if (thread.state != running_[0].state || (!*ended && &thread.last() != &running_[0].last())) {
      Thread& waiting = thread.state == Thread::State::kAtBarrier ? thread : running_[0];
      const Thread& other = &waiting == &thread ? running_[0] : thread;
      waiting.Fail(waiting.last(),
                   ThreadName(other.index()) + " does not come to this barrier: it " +
                       (other.state == Thread::State::kEnded ? "has ended at " : "waits at ") +
                       other.Where(other.last()));
      return waiting.error;
    }
  }
  if (!*ended) {
    for (Thread& thread : running_) thread.state = Thread::State::kRunning;
  }
  return Status();
}

namespace {

// The host's address of `bytes` at the instruction's, or nullptr: then the thread has failed.
template <Space kSpace>
char* AddressOf(Thread& t, const Instruction& i, uint32_t reg, size_t bytes, bool write) {
  uint64_t address = t.Get<uint64_t>(reg) + static_cast<uint64_t>(i.offset);
  if (kSpace == Space::kShared) address = static_cast<uint32_t>(address);
  const auto fail = [&](const std::string& why) -> char* {
    t.Fail(i, "address " + Hex(address) + " " + why);
    return nullptr;
  };
  if (address % bytes != 0) return fail("is not a multiple of " + std::to_string(bytes));
  char* const at = reinterpret_cast<char*>(address);
  const auto within = [&](const void* memory, size_t size) {
    const auto begin = reinterpret_cast<uint64_t>(memory);
    return address >= begin && size >= bytes && address - begin <= size - bytes;
  };
  if constexpr (kSpace == Space::kShared) {
    SharedMemory& shared = t.block().shared();
    if (!within(nullptr, shared.bytes()))
      return fail("is outside the " + std::to_string(shared.bytes()) + " bytes of shared memory");
    if (const char* const race = shared.Touch(address, bytes, t.index(), write))
      return fail(std::string("of shared memory: ") + race);
    return shared.data() + address;
  } else if constexpr (kSpace == Space::kGlobal) {
    if (t.ahead) return fail("is touched before griddepcontrol.wait");
    const auto& variables = t.frame().function->variables;
    const auto holds = [&](std::span<const std::byte> v) { return within(v.data(), v.size()); };
    if (!t.block().Holds(at, bytes) && std::none_of(variables.begin(), variables.end(), holds))
      return fail("is in no block of the device's memory");
  } else {
    const Function& function = *t.frame().function;
    const bool parameter = kSpace == Space::kParam && t.in_kernel() && !write &&
                           within(t.block().parameters(), function.parameter_bytes);
    if (!parameter && !within(t.frame().local_begin(), function.local_bytes))
      return fail("is outside the thread's own memory");
  }
  return at;
}

template <typename T, uint32_t kCount, Space kSpace>
void Load(Thread& t, const Instruction& i) {
  const char* const from =
      AddressOf<kSpace>(t, i, i.operands[kCount], kCount * sizeof(T), /*write=*/false);
  if (from == nullptr) return;
  for (uint32_t k = 0; k < kCount; ++k) {
    T value;
    std::memcpy(&value, from + k * sizeof(T), sizeof(T));
    t.Put(i.operands[k], value);
  }
}

template <typename T, uint32_t kCount, Space kSpace>
void Store(Thread& t, const Instruction& i) {
  char* const to = AddressOf<kSpace>(t, i, i.operands[0], kCount * sizeof(T), /*write=*/true);
  if (to == nullptr) return;
  for (uint32_t k = 0; k < kCount; ++k) {
    const T value = t.Get<T>(i.operands[1 + k]);
    std::memcpy(to + k * sizeof(T), &value, sizeof(T));
  }
}

// Blocks run one after the other, so that nothing comes between reading and writing.
void IncrementUpTo(Thread& t, const Instruction& i) {
  char* const at = AddressOf<Space::kGlobal>(t, i, i.operands[1], 4, /*write=*/true);
  if (at == nullptr) return;
  uint32_t old;
  std::memcpy(&old, at, 4);
  const uint32_t next = old >= t.Get<uint32_t>(i.operands[2]) ? 0 : old + 1;
  std::memcpy(at, &next, 4);
  t.Put(i.operands[0], old);
}
void Fence(Thread&, const Instruction&) {}
void AwaitGridBefore(Thread& t, const Instruction&) { t.ahead = false; }
void LetNextGridStart(Thread&, const Instruction&) {}

using Opcodes = std::map<std::string, Opcode, std::less<>>;

template <typename T, Space kSpace>
void AddAccesses(Opcodes& table, const std::string& space, const char* type) {
  table["ld." + space + "." + type] = {&Load<T, 1, kSpace>, 2};
  table["ld." + space + ".v2." + type] = {&Load<T, 2, kSpace>, 3};
  table["ld." + space + ".v4." + type] = {&Load<T, 4, kSpace>, 5};
  table["st." + space + "." + type] = {&Store<T, 1, kSpace>, 2};
  table["st." + space + ".v2." + type] = {&Store<T, 2, kSpace>, 3};
  table["st." + space + ".v4." + type] = {&Store<T, 4, kSpace>, 5};
}

template <Space kSpace>
void AddSpace(Opcodes& table, const std::string& space) {
  for (const char* type : {"u8", "b8"}) AddAccesses<uint8_t, kSpace>(table, space, type);
  for (const char* type : {"u16", "b16"}) AddAccesses<uint16_t, kSpace>(table, space, type);
  for (const char* type : {"u32", "b32", "f32"}) AddAccesses<uint32_t, kSpace>(table, space, type);
  for (const char* type : {"u64", "b64", "f64", "s64"})
    AddAccesses<uint64_t, kSpace>(table, space, type);
  AddAccesses<int8_t, kSpace>(table, space, "s8");
  AddAccesses<int16_t, kSpace>(table, space, "s16");
  AddAccesses<int32_t, kSpace>(table, space, "s32");
}

void Jump(Thread& t, const Instruction& i) { t.Branch(i); }
void Return(Thread& t, const Instruction& i) {
  if (t.in_kernel() && t.ahead) {
    t.Fail(i, "the thread ends without griddepcontrol.wait");
  } else if (t.in_kernel()) {
    t.state = Thread::State::kEnded;
  } else {
    t.Leave();
  }
}
void CallFunction(Thread& t, const Instruction& i) {
  t.Enter(t.frame().function->calls[static_cast<size_t>(i.offset)]);
}
void Barrier(Thread& t, const Instruction&) { t.state = Thread::State::kAtBarrier; }

}  // namespace

void AddMemoryOpcodes(Opcodes* table) {
  AddSpace<Space::kGlobal>(*table, "global");
  AddSpace<Space::kGlobal>(*table, "global.nc");
  AddSpace<Space::kShared>(*table, "shared");
  AddSpace<Space::kLocal>(*table, "local");
  AddSpace<Space::kParam>(*table, "param");
  (*table)["bra"] = (*table)["bra.uni"] = {&Jump, 0};
  (*table)["ret"] = {&Return, 0};
  (*table)["call"] = (*table)["call.uni"] = {&CallFunction, 0};
  (*table)["bar.sync"] = {&Barrier, 1};
  (*table)["atom.global.inc.u32"] = {&IncrementUpTo, 3};
  (*table)["membar.gl"] = {&Fence, 0};
  (*table)["griddepcontrol.wait"] = {&AwaitGridBefore, 0};
  (*table)["griddepcontrol.launch_dependents"] = {&LetNextGridStart, 0};
}

Status Launch(const Kernel& kernel, const LaunchDims& dims, void* const* args,
              const LaunchOptions& options) {
  const auto product = [](const uint32_t(&n)[3]) { return uint64_t{n[0]} * n[1] * n[2]; };
  const uint64_t threads = product(dims.block),
                 most = kernel.max_threads == 0 ? kMostThreads : kernel.max_threads;
  const std::string name = Demangled(kernel.name);
  if (product(dims.grid) == 0 || threads == 0)
    return InvalidArgument(name + " is launched without threads");
  if (threads > most) {
    return InvalidArgument(name + " is launched with blocks of " + std::to_string(threads) +
                           " threads; at most " + std::to_string(most) + " are possible");
  }
  if (kernel.shared_bytes + dims.dynamic_shared > kMostSharedBytes)
    return InvalidArgument(name + " is launched with too much shared memory");
  return Block(kernel, dims, args, options).RunAll();
}

}  // namespace monograph::ptx
