// A function of PTX as it is run: registers are numbered, constants and addresses lie in registers
// of their own, branches are indices, and each instruction is a pointer to the code that does it.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "tests/gpu/emulated/ptx.h"

namespace monograph::ptx {

class Thread;
struct Instruction;
using Step = void (*)(Thread&, const Instruction&);

struct Instruction {
  Step step = nullptr;
  uint32_t operands[6] = {};  // registers: the results, then the arguments
  int32_t guard = -1;         // the predicate's register; -1: always
  bool guard_value = true;    // runs if the predicate is so
  uint32_t at = 0;            // where it stands in the text
  int64_t offset = 0;         // of an address; of a branch, its target; of a call, its number
};

// A register that holds `value` from the start, or where `value` bytes into `space` lies.
enum class Space { kNone, kParam, kLocal, kShared, kGlobal };
struct Constant {
  uint32_t reg = 0;
  Space space = Space::kNone;
  uint64_t value = 0;
};

// Parameters and results of calls lie in the local memory of caller and callee.
struct Slot {
  size_t offset = 0, bytes = 0;
};
struct Call {
  std::string name;
  const Function* callee = nullptr;
  std::vector<Slot> arguments, results;
};

// The first registers of each frame, in this order: %tid.x, .y, .z, then those of %ntid, %ctaid and
// %nctaid, then one that nobody reads.
inline constexpr uint32_t kSpecials = 12, kSink = kSpecials, kFirstRegister = kSink + 1;

struct Function {
  std::string name;
  std::string_view text;  // of the whole module
  std::vector<Instruction> code;
  std::vector<Constant> constants;
  std::vector<Call> calls;
  std::vector<std::span<const std::byte>> variables;  // of the module, that it names
  std::vector<Slot> parameters, results;  // a kernel's parameters: in the launch's block of them
  uint32_t registers = kFirstRegister;
  size_t local_bytes = 0;
  size_t parameter_bytes = 0;
  size_t shared_bytes = 0;
  bool has_barrier = false;
};

// An instruction by its full name ("add.rn.f32"), and how many registers it names. `mov` with a
// vector has a name of its own: "mov.b64 {}" takes apart, "mov.b64 ,{}" puts together.
struct Opcode {
  Step step = nullptr;
  int operands = 0;
};
const Opcode* FindOpcode(std::string_view name);                           // nullptr: none
void AddMemoryOpcodes(std::map<std::string, Opcode, std::less<>>* table);  // ld, st, bra, ...

class Block;

// One of a block's threads.
class Thread {
 public:
  enum class State { kRunning, kAtBarrier, kEnded, kFailed };
  struct Frame {
    const Function* function = nullptr;
    const Instruction* next = nullptr;  // of a caller: what comes after its call
    std::unique_ptr<uint64_t[]> registers;
    std::unique_ptr<std::max_align_t[]> local;
    char* local_begin() const { return reinterpret_cast<char*>(local.get()); }
  };

  // Runs to its end, to a barrier or into an error.
  void Run();
  void Fail(const Instruction& at, const std::string& why);
  std::string Where(const Instruction& at) const;

  // A kernel's frame, to be started as often as there are blocks.
  void Prepare(Block* block, const Function& kernel);
  void Start(uint32_t index, const uint32_t (&specials)[kSpecials]);
  void Enter(const Call& call);  // a frame on top, with the arguments
  void Leave();                  // the frame on top, with the results

  template <typename T>
  T Get(uint32_t reg) const {
    if constexpr (std::is_same_v<T, bool>) {
      return (registers_[reg] & 1) != 0;
    } else {
      T value;
      std::memcpy(&value, &registers_[reg], sizeof(T));
      return value;
    }
  }
  template <typename T>
  void Put(uint32_t reg, T value) {
    // Narrow integers fill a register, with their sign.
    if constexpr (std::is_integral_v<T>) {
      registers_[reg] = static_cast<uint64_t>(value);
    } else {
      registers_[reg] = 0;
      std::memcpy(&registers_[reg], &value, sizeof(T));
    }
  }

  void Branch(const Instruction& at);
  const Instruction& last() const { return next_[-1]; }  // that was run
  Frame& frame() { return frames_.back(); }
  const Frame& frame() const { return frames_.back(); }
  bool in_kernel() const { return frames_.size() == 1; }
  Block& block() { return *block_; }
  uint32_t index() const { return index_; }

  State state = State::kEnded;
  bool carry = false;
  bool ahead = false;  // of the kernel before, for which it has not waited yet
  Status error;

 private:
  Frame MakeFrame(const Function& function) const;

  Block* block_ = nullptr;
  uint32_t index_ = 0;
  uint64_t branches_left_ = 0;
  // Of the frame on top.
  uint64_t* registers_ = nullptr;
  const Instruction* next_ = nullptr;
  std::vector<Frame> frames_;
};

}  // namespace monograph::ptx
