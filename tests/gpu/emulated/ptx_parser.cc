// Module::Parse. The grammar, as far as nvcc writes it for our kernels:
//
//   module    = { ".version" V | ".target" T | ".address_size" N | variable | function }
//   variable  = (".global" | ".const" | ".shared" | ".local" | ".param") [".align" N] type name
//               ["[" N "]"] ["=" "{" N {"," N} "}"]
//   function  = {".visible" | ".weak" | ".extern"} (".entry" | ".func") ["(" variables ")"] name
//               "(" variables ")" {directive} (";" | scope)
//   scope     = "{" { ".reg" type name ["<" N ">"] {"," ...} ";" | variable ";" | ".pragma" S ";"
//               | label ":" | ["@" ["!"] register] opcode [operands] ";" | scope } "}"
//   operand   = register | number | name | "[" operand ["+" N] "]" | "{" operand {"," operand} "}"
//   call      = "call" ["(" names ")" ","] name ["," "(" names ")"]
#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>

#include "tests/gpu/emulated/ptx_code.h"

namespace monograph::ptx {
namespace {

// What a name means within a scope.
struct Symbol {
  enum class Kind { kRegister, kRegisters, kVariable } kind = Kind::kRegister;
  uint32_t reg = 0, count = 0;  // kRegisters: name0 to name<count-1>
  Space space = Space::kNone;
  uint64_t value = 0;
  size_t bytes = 0;
};
using Scope = std::map<std::string_view, Symbol>;

struct Declaration {
  std::string_view name;
  size_t bytes = 0, align = 1, element = 1;
};

constexpr const char* kSpecialNames[kSpecials] = {
    "%tid.x",   "%tid.y",   "%tid.z",   "%ntid.x",   "%ntid.y",   "%ntid.z",
    "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z"};

bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

size_t SizeOf(std::string_view type) {
  if (type == ".pred") return 1;
  size_t bits = 0;
  const std::string_view digits = type.substr(std::min<size_t>(2, type.size()));
  std::from_chars(digits.data(), digits.data() + digits.size(), bits);
  return bits / 8;  // 0: no type
}

size_t AlignUp(size_t offset, size_t align) { return (offset + align - 1) / align * align; }

}  // namespace

class Parser {
 public:
  explicit Parser(std::string_view text) : module_(new Module) {
    module_->text_ = text;
    text_ = module_->text_;
    Next();
  }

  Result<std::unique_ptr<Module>> Run() {
    while (error_.ok() && !token_.empty()) TopLevel();
    if (error_.ok()) ResolveCalls();
    if (!error_.ok()) return error_;
    return std::move(module_);
  }

 private:
  // Tokens. `token_` is the next one, empty at the end and after an error.
  void Next() {
    if (!error_.ok()) return;
    SkipSpace();
    begin_ = end_;
    if (end_ < text_.size()) {
      if (IsWord(text_[end_])) {
        while (end_ < text_.size() && IsWord(text_[end_])) ++end_;
      } else if (text_[end_] == '"') {
        end_ = std::min(text_.find('"', end_ + 1), text_.size() - 1) + 1;
      } else {
        ++end_;
      }
    }
    token_ = text_.substr(begin_, end_ - begin_);
  }
  void SkipSpace() {
    while (end_ < text_.size()) {
      if (text_.substr(end_, 2) == "//") {
        end_ = std::min(text_.find('\n', end_), text_.size());
      } else if (text_.substr(end_, 2) == "/*") {
        end_ = std::min(text_.find("*/", end_), text_.size() - 2) + 2;
      } else if (std::isspace(static_cast<unsigned char>(text_[end_])) != 0) {
        ++end_;
      } else {
        return;
      }
    }
  }
  void Fail(const std::string& why) {
    if (!error_.ok()) return;
    const auto line = 1 + std::count(text_.begin(), text_.begin() + begin_, '\n');
    error_ = Unimplemented("PTX, line " + std::to_string(line) + ": " + why);
    token_ = {};
  }
  std::string_view Take() {
    const std::string_view token = token_;
    Next();
    return token;
  }
  bool Accept(std::string_view token) {
    if (token_ != token) return false;
    Next();
    return true;
  }
  void Expect(std::string_view token) {
    if (!Accept(token))
      Fail("'" + std::string(token_) + "' stands where '" + std::string(token) + "' belongs");
  }

  // A number's bits: 12, -12, 0x12, 0f3F800000, 0d3FF0000000000000.
  uint64_t Number() {
    const bool negative = Accept("-");
    std::string_view digits = token_;
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0' && std::isalpha(digits[1]) != 0) {
      base = 16;
      digits.remove_prefix(2);
    }
    if (digits.ends_with('U')) digits.remove_suffix(1);
    uint64_t value = 0;
    const auto end = digits.data() + digits.size();
    if (std::from_chars(digits.data(), end, value, base).ptr != end || digits.empty())
      Fail("'" + std::string(token_) + "' is no number");
    Next();
    return negative ? 0 - value : value;
  }

  // ... [.align N] .type name [ [N] ]
  Declaration Declare() {
    Declaration d;
    size_t align = 0;
    if (Accept(".align")) align = Number();
    d.element = d.bytes = SizeOf(token_);
    if (d.bytes == 0) Fail("'" + std::string(token_) + "' is no type");
    Next();
    d.align = align != 0 ? align : d.bytes;
    d.name = Take();
    if (Accept("[")) {
      d.bytes *= Number();
      Expect("]");
    }
    return d;
  }

  void TopLevel() {
    if (Accept(".version") || Accept(".target") || Accept(".address_size")) {
      do {
        Next();
      } while (Accept(","));
    } else if (Accept(".global") || Accept(".const")) {
      ModuleVariable();
    } else if (Accept(".visible") || Accept(".weak") || Accept(".extern")) {
    } else if (token_ == ".entry" || token_ == ".func") {
      const bool kernel = Take() == ".entry";
      FunctionOf(kernel);
    } else {
      Fail("'" + std::string(token_) + "' is not known");
    }
  }

  void ModuleVariable() {
    const Declaration d = Declare();
    auto memory = std::make_unique<std::max_align_t[]>(d.bytes / sizeof(std::max_align_t) + 1);
    auto* at = reinterpret_cast<char*>(memory.get());
    const auto address = reinterpret_cast<uint64_t>(at);
    if (Accept("=")) {
      const bool list = Accept("{");
      for (const char* const end = at + d.bytes; at < end && error_.ok(); at += d.element) {
        const uint64_t value = Number();
        std::memcpy(at, &value, d.element);  // little endian
        if (!list || !Accept(",")) break;
      }
      if (list) Expect("}");
    }
    Expect(";");
    if (d.align > alignof(std::max_align_t)) Fail("the variable's alignment is too large");
    scopes_[0][d.name] = {Symbol::Kind::kVariable, 0, 0, Space::kGlobal, address, d.bytes};
    module_->variables_[std::string(d.name)] = {std::move(memory), d.bytes};
  }

  // "(" .param ... ")" as slots of *bytes, known by their names in `space`.
  std::vector<Slot> Parameters(Space space, size_t* bytes) {
    std::vector<Slot> slots;
    Expect("(");
    while (Accept(".param")) {
      const Declaration d = Declare();
      *bytes = AlignUp(*bytes, d.align);
      slots.push_back({*bytes, d.bytes});
      scopes_.back()[d.name] = {Symbol::Kind::kVariable, 0, 0, space, *bytes, d.bytes};
      *bytes += d.bytes;
      Accept(",");
    }
    Expect(")");
    return slots;
  }

  void FunctionOf(bool kernel) {
    function_ = std::make_unique<Function>();
    Function& f = *function_;
    f.text = text_;
    scopes_.resize(1);
    scopes_.emplace_back();
    constants_.clear();
    labels_.clear();
    branches_.clear();
    if (token_ == "(") f.results = Parameters(Space::kLocal, &f.local_bytes);
    f.name = Take();
    Kernel entry;
    if (token_ == "(") {
      f.parameters = kernel ? Parameters(Space::kParam, &f.parameter_bytes)
                            : Parameters(Space::kLocal, &f.local_bytes);
    }
    while (error_.ok() && token_ != "{" && token_ != ";") {
      if (Accept(".maxntid")) {
        entry.max_threads = 1;
        do {
          entry.max_threads *= static_cast<uint32_t>(Number());
        } while (Accept(","));
      } else if (Accept(".minnctapersm")) {  // how many registers there are: no matter here
        Number();
      } else {
        Fail("'" + std::string(token_) + "' is not known");
      }
    }
    if (Accept(";")) return;  // declared before it is called
    Expect("{");
    Body();
    if (!error_.ok()) return;
    for (const auto& [at, label] : branches_) {
      const auto target = labels_.find(label);
      if (target == labels_.end()) return Fail("there is no label " + std::string(label));
      f.code[at].offset = target->second;
    }
    all_.push_back(&f);
    if (!kernel) {
      module_->functions_[f.name] = std::move(function_);
      return;
    }
    entry.name = f.name;
    entry.shared_bytes = f.shared_bytes;
    for (const Slot& p : f.parameters) entry.parameters.push_back({p.offset, p.bytes});
    entry.code = std::move(function_);
    module_->kernels_[entry.name] = std::move(entry);
  }

  void Body() {
    const size_t outside = scopes_.size();
    scopes_.emplace_back();
    while (error_.ok() && scopes_.size() > outside) {
      if (Accept("{")) {
        scopes_.emplace_back();
      } else if (Accept("}")) {
        scopes_.pop_back();
      } else if (Accept(".reg")) {
        Registers();
      } else if (Accept(".shared")) {
        Variable(Space::kShared, &function_->shared_bytes);
      } else if (Accept(".local") || Accept(".param")) {
        Variable(Space::kLocal, &function_->local_bytes);
      } else if (Accept(".pragma")) {
        while (error_.ok() && !Accept(";")) Next();
      } else {
        Statement();
      }
    }
    // As a body may end with a label.
    Emit({.step = FindOpcode("ret")->step, .at = static_cast<uint32_t>(begin_)});
  }

  void Registers() {
    if (SizeOf(token_) == 0) Fail("'" + std::string(token_) + "' is no type");
    Next();
    do {
      const std::string_view name = Take();
      Symbol symbol{Symbol::Kind::kRegister, function_->registers, 1};
      if (Accept("<")) {
        symbol.kind = Symbol::Kind::kRegisters;
        symbol.count = static_cast<uint32_t>(Number());
        Expect(">");
      }
      function_->registers += symbol.count;
      scopes_.back()[name] = symbol;
    } while (Accept(","));
    Expect(";");
  }

  void Variable(Space space, size_t* bytes) {
    const Declaration d = Declare();
    Expect(";");
    if (d.bytes == 0) return Fail("the size of " + std::string(d.name) + " is not known");
    *bytes = AlignUp(*bytes, d.align);
    scopes_.back()[d.name] = {Symbol::Kind::kVariable, 0, 0, space, *bytes, d.bytes};
    *bytes += d.bytes;
  }

  const Symbol* Lookup(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return &found->second;
    }
    return nullptr;
  }
  // A register of the range that its name's letters name.
  std::optional<uint32_t> Register(std::string_view name) const {
    for (uint32_t i = 0; i < kSpecials; ++i) {
      if (name == kSpecialNames[i]) return i;
    }
    if (name == "_") return kSink;
    if (const Symbol* symbol = Lookup(name))
      return symbol->kind == Symbol::Kind::kRegister ? std::optional(symbol->reg) : std::nullopt;
    const size_t letters = name.find_last_not_of("0123456789") + 1;
    const Symbol* symbol = Lookup(name.substr(0, letters));
    uint32_t number = 0;
    std::from_chars(name.data() + letters, name.data() + name.size(), number);
    if (symbol == nullptr || symbol->kind != Symbol::Kind::kRegisters || letters == name.size() ||
        number >= symbol->count)
      return std::nullopt;
    return symbol->reg + number;
  }
  uint32_t ConstantRegister(Space space, uint64_t value) {
    const auto [found, is_new] = constants_.try_emplace({space, value}, function_->registers);
    if (is_new) function_->constants.push_back({function_->registers++, space, value});
    return found->second;
  }

  uint32_t Value() {
    if (token_ == "-" || (!token_.empty() && std::isdigit(token_[0]) != 0))
      return ConstantRegister(Space::kNone, Number());
    const std::string_view name = Take();
    if (const auto reg = Register(name)) return *reg;
    const Symbol* const symbol = Lookup(name);
    if (symbol == nullptr || symbol->kind != Symbol::Kind::kVariable) {
      Fail("'" + std::string(name) + "' is not known");
      return 0;
    }
    if (symbol->space == Space::kGlobal) {
      function_->variables.emplace_back(reinterpret_cast<const std::byte*>(symbol->value),
                                        symbol->bytes);
    }
    return ConstantRegister(symbol->space, symbol->value);
  }

  uint32_t Emit(const Instruction& instruction) {
    function_->code.push_back(instruction);
    return static_cast<uint32_t>(function_->code.size() - 1);
  }

  void Statement() {
    Instruction i;
    i.at = static_cast<uint32_t>(begin_);
    if (Accept("@")) {
      i.guard_value = !Accept("!");
      i.guard = static_cast<int32_t>(Value());
    }
    const std::string_view name = Take();
    if (Accept(":")) {
      labels_[name] = static_cast<int64_t>(function_->code.size());
      return;
    }
    if (name == "bra" || name == "bra.uni") {
      i.step = FindOpcode(name)->step;
      branches_.emplace_back(Emit(i), Take());
    } else if (name == "call" || name == "call.uni") {
      i.step = FindOpcode(name)->step;
      CallOf(i);
    } else {
      Operation(name, i);
    }
    Expect(";");
  }

  void Operation(std::string_view name, Instruction i) {
    int count = 0;
    bool reads_time = false;
    bool vectors[2] = {};  // whether the first, the second operand is one
    const auto add = [&](uint32_t reg) {
      if (count < static_cast<int>(std::size(i.operands))) i.operands[count] = reg;
      ++count;
    };
    for (int k = 0; error_.ok() && token_ != ";"; ++k) {
      if (k > 0) Expect(",");
      if (Accept("{")) {
        if (k < 2) vectors[k] = true;
        do {
          add(Value());
        } while (Accept(","));
        Expect("}");
      } else if (Accept("[")) {
        add(Value());
        if (Accept("+")) i.offset = static_cast<int64_t>(Number());
        Expect("]");
      } else if (Accept("%globaltimer")) {
        reads_time = true;
      } else {
        add(Value());
      }
    }
    std::string full(name);
    if (reads_time) full += " %globaltimer";
    if (name.starts_with("mov.") && vectors[0]) full += " {}";
    if (name.starts_with("mov.") && vectors[1]) full += " ,{}";
    const Opcode* const opcode = FindOpcode(full);
    if (opcode == nullptr) return Fail("the instruction '" + full + "' is not known");
    if (opcode->operands != count) {
      return Fail("'" + full + "' has " + std::to_string(count) + " operands instead of " +
                  std::to_string(opcode->operands));
    }
    i.step = opcode->step;
    if (name.starts_with("bar.")) function_->has_barrier = true;
    Emit(i);
  }

  std::vector<Slot> Slots() {
    std::vector<Slot> slots;
    Expect("(");
    while (error_.ok() && !Accept(")")) {
      const Symbol* const symbol = Lookup(token_);
      if (symbol == nullptr || symbol->space != Space::kLocal) {
        Fail("'" + std::string(token_) + "' is no parameter");
        break;
      }
      slots.push_back({symbol->value, symbol->bytes});
      Next();
      Accept(",");
    }
    return slots;
  }

  void CallOf(Instruction i) {
    Call call;
    if (token_ == "(") {
      call.results = Slots();
      Expect(",");
    }
    call.name = Take();
    if (Accept(",")) call.arguments = Slots();
    i.offset = static_cast<int64_t>(function_->calls.size());
    function_->calls.push_back(std::move(call));
    Emit(i);
  }

  void ResolveCalls() {
    for (Function* const f : all_) {
      for (Call& call : f->calls) {
        const auto callee = module_->functions_.find(call.name);
        if (callee == module_->functions_.end())
          return Fail(f->name + " calls " + call.name + ", which is not defined");
        const auto fit = [](const std::vector<Slot>& a, const std::vector<Slot>& b) {
          return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                            [](const Slot& x, const Slot& y) { return x.bytes == y.bytes; });
        };
        call.callee = callee->second.get();
        if (!fit(call.arguments, call.callee->parameters) ||
            !fit(call.results, call.callee->results) || call.callee->has_barrier)
          return Fail(f->name + " cannot call " + call.name);
      }
    }
  }

  std::unique_ptr<Module> module_;
  std::string_view text_;
  size_t begin_ = 0, end_ = 0;  // of the token
  std::string_view token_;
  Status error_;

  std::vector<Scope> scopes_ = std::vector<Scope>(1);  // [0]: the module's
  std::unique_ptr<Function> function_;
  std::vector<Function*> all_;  // with a body; the module owns them
  std::map<std::pair<Space, uint64_t>, uint32_t> constants_;
  std::map<std::string_view, int64_t> labels_;
  std::vector<std::pair<uint32_t, std::string_view>> branches_;
};

Module::Module() = default;
Module::~Module() = default;

Result<std::unique_ptr<Module>> Module::Parse(std::string_view text) { return Parser(text).Run(); }

const Kernel* Module::Find(std::string_view name) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : &found->second;
}

std::span<std::byte> Module::Variable(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return {};
  return {reinterpret_cast<std::byte*>(found->second.first.get()), found->second.second};
}

}  // namespace monograph::ptx
