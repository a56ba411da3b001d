#include "tests/simulation/context.h"

#include <cxxabi.h>
#include <link.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace monograph::simulation {
namespace {

constexpr size_t kStack = size_t{512} << 10, kGuard = 4096;

// Where the thread_local variables of this program are, and what they are at first.
struct Locals {
  char* data = nullptr;
  size_t bytes = 0;
  const char* initial = nullptr;
  size_t initial_bytes = 0;

  Locals() {
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* self) {
          auto* locals = static_cast<Locals*>(self);
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_TLS) continue;
            locals->data = static_cast<char*>(info->dlpi_tls_data);
            locals->bytes = segment.p_memsz;
            locals->initial = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
            locals->initial_bytes = segment.p_filesz;
          }
          return 1;  // the first object is the program
        },
        this);
  }
};

const Locals& ProgramLocals() {
  static const Locals locals;
  return locals;
}

// Stacks that were used before: mapping one costs more than a thread does otherwise.
std::vector<void*>& FreeStacks() {
  static auto* stacks = new std::vector<void*>;
  return *stacks;
}

void* TakeStack() {
  std::vector<void*>& free = FreeStacks();
  if (!free.empty()) {
    void* stack = free.back();
    free.pop_back();
    return stack;
  }
  void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED || mprotect(stack, kGuard, PROT_NONE) != 0) {
    std::perror("a stack for a simulated thread");
    std::abort();
  }
  return stack;
}

}  // namespace

// Pushes what a function keeps for its caller, changes the stack, pops.
extern "C" void mg_switch_stack(void** save, void* to);
asm(R"(
.text
.globl mg_switch_stack
.type mg_switch_stack, @function
mg_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mg_switch_stack, .-mg_switch_stack
.globl mg_enter_stack
.type mg_enter_stack, @function
mg_enter_stack:
  movq %r12, %rdi
  xorl %ebp, %ebp
  pushq $0
  jmpq *%rbx
.size mg_enter_stack, .-mg_enter_stack
)");
extern "C" void mg_enter_stack();

Context::Context(void (*enter)(void*), void* argument) : stack_(TakeStack()) {
  const Locals& program = ProgramLocals();
  locals_.resize(program.bytes);
  std::memcpy(locals_.data(), program.initial, program.initial_bytes);
  // What mg_switch_stack pops: r15, r14, r13, r12, rbx, rbp, the address to return to.
  void** top = reinterpret_cast<void**>(static_cast<char*>(stack_) + kStack) - 2;
  *--top = reinterpret_cast<void*>(&mg_enter_stack);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(enter);
  *--top = argument;
  for (int i = 0; i < 3; ++i) *--top = nullptr;
  stack_pointer_ = top;
}

Context::~Context() {
  if (stack_ != nullptr) FreeStacks().push_back(stack_);
}

void Context::Save() {
  const Locals& program = ProgramLocals();
  locals_.resize(program.bytes);
  std::memcpy(locals_.data(), program.data, program.bytes);
  std::memcpy(exceptions_, abi::__cxa_get_globals(), sizeof exceptions_);
  error_ = errno;
}

void Context::Restore() {
  std::memcpy(ProgramLocals().data, locals_.data(), locals_.size());
  std::memcpy(static_cast<void*>(abi::__cxa_get_globals()), exceptions_, sizeof exceptions_);
  errno = error_;
}

void Context::Switch(Context& from, Context& to) {
  from.Save();
  to.Restore();
  mg_switch_stack(&from.stack_pointer_, to.stack_pointer_);
}

}  // namespace monograph::simulation
