// What each instruction computes from its operands alone. Compiled with -frounding-math.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/dtype.h"
#include "tests/gpu/emulated/ptx_code.h"

namespace monograph::ptx {
namespace {

constexpr uint32_t kNan = 0x7fffffff;  // the only one that a GPU computes
constexpr uint16_t kHalfNan = 0x7fff;

// The step that a function of values is: R(A...), or R(bool& carry, A...).
template <typename Fn, typename Signature>
struct StepOf;
template <typename Fn, typename R, typename... A>
struct StepOf<Fn, R (Fn::*)(A...) const> {
  static constexpr int kOperands = 1 + sizeof...(A);
  static void Run(Thread& t, const Instruction& i) {
    [&]<size_t... k>(std::index_sequence<k...>) {
      const R result = Fn()(t.Get<A>(i.operands[1 + k])...);
      if constexpr (std::is_same_v<R, float>) {
        if (std::isnan(result)) return t.Put(i.operands[0], kNan);
      }
      t.Put(i.operands[0], result);
    }
    (std::index_sequence_for<A...>());
  }
};
template <typename Fn, typename R, typename... A>
struct StepOf<Fn, R (Fn::*)(bool&, A...) const> {
  static constexpr int kOperands = 1 + sizeof...(A);
  static void Run(Thread& t, const Instruction& i) {
    [&]<size_t... k>(std::index_sequence<k...>) {
      t.Put(i.operands[0], Fn()(t.carry, t.Get<A>(i.operands[1 + k])...));
    }
    (std::index_sequence_for<A...>());
  }
};

class Table {
 public:
  template <typename Fn>
  void Add(const std::string& name, Fn) {
    using S = StepOf<Fn, decltype(&Fn::operator())>;
    opcodes_[name] = {&S::Run, S::kOperands};
  }
  // a, b <- c: two halves of a register.
  template <typename Whole, typename Part>
  void AddHalves(const std::string& type) {
    opcodes_["mov." + type + " {}"] = {[](Thread& t, const Instruction& i) {
                                         const Whole whole = t.Get<Whole>(i.operands[2]);
                                         t.Put(i.operands[0], static_cast<Part>(whole));
                                         t.Put(i.operands[1],
                                               static_cast<Part>(whole >> (8 * sizeof(Part))));
                                       },
                                       3};
    Add("mov." + type + " ,{}", [](Part low, Part high) {
      return static_cast<Whole>(static_cast<Whole>(high) << (8 * sizeof(Part)) | low);
    });
  }
  std::map<std::string, Opcode, std::less<>>& opcodes() { return opcodes_; }

 private:
  std::map<std::string, Opcode, std::less<>> opcodes_;
};

template <typename Fn>
void ForIntegers(const Fn& fn) {
  fn(int8_t{}, "s8");
  fn(uint8_t{}, "u8");
  fn(int16_t{}, "s16");
  fn(uint16_t{}, "u16");
  fn(int32_t{}, "s32");
  fn(uint32_t{}, "u32");
  fn(int64_t{}, "s64");
  fn(uint64_t{}, "u64");
}

// Arithmetic modulo 2^64 gives the low bits of every narrower one.
template <typename T>
constexpr uint64_t U(T x) {
  return static_cast<uint64_t>(x);
}

template <typename T>
void AddCompare(Table& table, const std::string& type) {
  table.Add("setp.eq." + type, [](T a, T b) { return a == b; });
  table.Add("setp.ne." + type, [](T a, T b) { return a < b || a > b; });
  table.Add("setp.lt." + type, [](T a, T b) { return a < b; });
  table.Add("setp.le." + type, [](T a, T b) { return a <= b; });
  table.Add("setp.gt." + type, [](T a, T b) { return a > b; });
  table.Add("setp.ge." + type, [](T a, T b) { return a >= b; });
}

template <typename T>
void AddIntegers(Table& table, const std::string& type) {
  constexpr int kBits = 8 * sizeof(T);
  table.Add("add." + type, [](T a, T b) { return static_cast<T>(U(a) + U(b)); });
  table.Add("sub." + type, [](T a, T b) { return static_cast<T>(U(a) - U(b)); });
  table.Add("mul.lo." + type, [](T a, T b) { return static_cast<T>(U(a) * U(b)); });
  table.Add("mad.lo." + type, [](T a, T b, T c) { return static_cast<T>(U(a) * U(b) + U(c)); });
  table.Add("neg." + type, [](T a) { return static_cast<T>(0 - U(a)); });
  table.Add("abs." + type, [](T a) { return a < 0 ? static_cast<T>(0 - U(a)) : a; });
  table.Add("min." + type, [](T a, T b) { return std::min(a, b); });
  table.Add("max." + type, [](T a, T b) { return std::max(a, b); });
  // By 0: all ones, as GPUs give. The least number by -1: itself.
  table.Add("div." + type, [](T a, T b) {
    if (b == 0) return static_cast<T>(~U(T{0}));
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - U(a));
    return static_cast<T>(a / b);
  });
  table.Add("rem." + type, [](T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return T{0};
    return static_cast<T>(a % b);
  });
  table.Add("shr." + type, [](T a, uint32_t n) {
    if (n >= kBits) return static_cast<T>(a < 0 ? -1 : 0);
    return static_cast<T>(a >> n);
  });
  using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  table.Add("mul.hi." + type,
            [](T a, T b) { return static_cast<T>(static_cast<Wide>(a) * b >> kBits); });
  if constexpr (kBits < 64) {
    using Twice =
        std::conditional_t<kBits == 16, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                           std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
    table.Add("mul.wide." + type, [](T a, T b) { return static_cast<Twice>(U(a) * U(b)); });
    table.Add("mad.wide." + type,
              [](T a, T b, Twice c) { return static_cast<Twice>(U(a) * U(b) + U(c)); });
  }
  AddCompare<T>(table, type);
}

template <typename T>
void AddBits(Table& table, const std::string& type) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  table.Add("and." + type, [](T a, T b) { return static_cast<T>(a & b); });
  table.Add("or." + type, [](T a, T b) { return static_cast<T>(a | b); });
  table.Add("xor." + type, [](T a, T b) { return static_cast<T>(a ^ b); });
  table.Add("not." + type, [](T a) { return static_cast<T>(~a); });
  table.Add("shl." + type,
            [](T a, uint32_t n) { return n >= kBits ? T{0} : static_cast<T>(U(a) << n); });
  table.Add("clz." + type, [](T a) { return static_cast<uint32_t>(std::countl_zero(a)); });
  // `length` bits of `a` at `begin` of `b`.
  table.Add("bfi." + type, [](T a, T b, uint32_t begin, uint32_t length) {
    begin &= 0xff, length &= 0xff;
    if (begin >= kBits) return b;
    const uint64_t ones = length >= 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1;
    return static_cast<T>((b & ~(ones << begin)) | (U(a) & ones) << begin);
  });
  table.Add("setp.eq." + type, [](T a, T b) { return a == b; });
  table.Add("setp.ne." + type, [](T a, T b) { return a != b; });
}

void AddPredicates(Table& table) {
  table.Add("and.pred", [](bool a, bool b) { return a && b; });
  table.Add("or.pred", [](bool a, bool b) { return a || b; });
  table.Add("xor.pred", [](bool a, bool b) { return a != b; });
  table.Add("not.pred", [](bool a) { return !a; });
  table.Add("mov.pred", [](bool a) { return a; });
}

template <typename T>
void AddMoves(Table& table, std::initializer_list<const char*> types) {
  for (const std::string type : types) {
    table.Add("mov." + type, [](T a) { return a; });
    table.Add("selp." + type, [](T a, T b, bool which) { return which ? a : b; });
  }
}

void AddTime(Table& table) {
  table.Add("mov.u64 %globaltimer", [] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
  });
}

// Of more than one register's width. `carry` is the borrow of a subtraction, too.
void AddCarries(Table& table) {
  struct Sum {
    static uint32_t Of(bool& carry, uint64_t sum) {
      carry = (sum >> 32 & 1) != 0;
      return static_cast<uint32_t>(sum);
    }
  };
  table.Add("add.cc.u32", [](bool& c, uint32_t a, uint32_t b) { return Sum::Of(c, U(a) + b); });
  table.Add("addc.cc.u32",
            [](bool& c, uint32_t a, uint32_t b) { return Sum::Of(c, U(a) + b + U(c)); });
  table.Add("addc.u32", [](bool& c, uint32_t a, uint32_t b) { return a + b + uint32_t{c}; });
  table.Add("sub.cc.u32", [](bool& c, uint32_t a, uint32_t b) { return Sum::Of(c, U(a) - b); });
  table.Add("subc.cc.u32",
            [](bool& c, uint32_t a, uint32_t b) { return Sum::Of(c, U(a) - b - U(c)); });
  table.Add("subc.u32", [](bool& c, uint32_t a, uint32_t b) { return a - b - uint32_t{c}; });
  table.Add("mad.lo.cc.u32",
            [](bool& c, uint32_t x, uint32_t y, uint32_t z) { return Sum::Of(c, U(x * y) + z); });
  table.Add("madc.lo.cc.u32", [](bool& c, uint32_t x, uint32_t y, uint32_t z) {
    return Sum::Of(c, U(x * y) + z + U(c));
  });
  table.Add("madc.hi.cc.u32", [](bool& c, uint32_t x, uint32_t y, uint32_t z) {
    return Sum::Of(c, (U(x) * y >> 32) + z + U(c));
  });
  table.Add("madc.hi.u32", [](bool& c, uint32_t x, uint32_t y, uint32_t z) {
    return static_cast<uint32_t>((U(x) * y >> 32) + z + U(c));
  });
}

// Four bytes, each of those of b:a by its number, or that one's sign.
uint32_t Permute(uint32_t a, uint32_t b, uint32_t which) {
  const uint64_t bytes = U(b) << 32 | a;
  uint32_t result = 0;
  for (uint32_t k = 0; k < 4; ++k) {
    const uint32_t selector = which >> (4 * k) & 0xf;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (selector & 7))) & 0xff;
    if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * k);
  }
  return result;
}

// fn(a...) in another rounding mode.
template <typename Fn, typename... A>
float Rounded(int mode, const Fn& fn, A... a) {
  const int was = std::fegetround();
  std::fesetround(mode);
  const std::tuple<volatile A...> values{a...};
  const volatile float result = std::apply(fn, values);
  std::fesetround(was);
  return result;
}

float Flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

template <typename T>
void AddFloats(Table& table, const std::string& type) {
  table.Add("add.rn." + type, [](T a, T b) { return a + b; });
  table.Add("sub.rn." + type, [](T a, T b) { return a - b; });
  table.Add("mul.rn." + type, [](T a, T b) { return a * b; });
  table.Add("div.rn." + type, [](T a, T b) { return a / b; });
  table.Add("rcp.rn." + type, [](T a) { return T{1} / a; });
  table.Add("sqrt.rn." + type, [](T a) { return std::sqrt(a); });
  table.Add("fma.rn." + type, [](T a, T b, T c) { return std::fma(a, b, c); });
  // Of a number and a NaN, the number; -0 is less than 0.
  table.Add("min." + type, [](T a, T b) {
    return a == b ? (std::signbit(a) ? a : b) : std::isnan(a) || b < a ? b : a;
  });
  table.Add("max." + type, [](T a, T b) {
    return a == b ? (std::signbit(a) ? b : a) : std::isnan(a) || b > a ? b : a;
  });
  AddCompare<T>(table, type);
  table.Add("setp.equ." + type, [](T a, T b) { return !(a < b) && !(a > b); });
  table.Add("setp.neu." + type, [](T a, T b) { return a != b; });
  table.Add("setp.ltu." + type, [](T a, T b) { return !(a >= b); });
  table.Add("setp.leu." + type, [](T a, T b) { return !(a > b); });
  table.Add("setp.gtu." + type, [](T a, T b) { return !(a <= b); });
  table.Add("setp.geu." + type, [](T a, T b) { return !(a < b); });
  table.Add("setp.num." + type, [](T a, T b) { return !std::isnan(a) && !std::isnan(b); });
  table.Add("setp.nan." + type, [](T a, T b) { return std::isnan(a) || std::isnan(b); });
  // These keep a NaN's bits.
  using B = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr B kSign = B{1} << (8 * sizeof(T) - 1);
  table.Add("neg." + type, [](B a) { return a ^ kSign; });
  table.Add("abs." + type, [](B a) { return a & ~kSign; });
  table.Add("copysign." + type, [](B sign, B a) { return (a & ~kSign) | (sign & kSign); });
  // To the same type, an integer.
  table.Add("cvt.rni." + type + "." + type, [](T a) { return std::nearbyint(a); });
  table.Add("cvt.rzi." + type + "." + type, [](T a) { return std::trunc(a); });
  table.Add("cvt.rmi." + type + "." + type, [](T a) { return std::floor(a); });
  table.Add("cvt.rpi." + type + "." + type, [](T a) { return std::ceil(a); });
}

void AddOtherRoundings(Table& table) {
  table.Add("add.rz.f32", [](float a, float b) {
    return Rounded(
        FE_TOWARDZERO, [](float x, float y) { return x + y; }, a, b);
  });
  table.Add("fma.rz.f32", [](float a, float b, float c) {
    return Rounded(
        FE_TOWARDZERO, [](float x, float y, float z) { return std::fma(x, y, z); }, a, b, c);
  });
  table.Add("fma.rm.f32", [](float a, float b, float c) {
    return Rounded(
        FE_DOWNWARD, [](float x, float y, float z) { return std::fma(x, y, z); }, a, b, c);
  });
}

double Flush(double x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0, x) : x; }

// What Newton's method begins with.
double UpperHalf(double x) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(Flush(x)) & ~uint64_t{0xffffffff});
}

void AddApproximations(Table& table) {
  const auto exp2 = [](float a) { return static_cast<float>(std::exp2(static_cast<double>(a))); };
  table.Add("ex2.approx.f32", exp2);
  table.Add("ex2.approx.ftz.f32", [](float a) {
    return Flush(static_cast<float>(std::exp2(static_cast<double>(Flush(a)))));
  });
  table.Add("div.approx.f32", [](float a, float b) { return a / b; });
  table.Add("div.approx.ftz.f32", [](float a, float b) { return Flush(Flush(a) / Flush(b)); });
  table.Add("rcp.approx.ftz.f32", [](float a) { return Flush(1.0f / Flush(a)); });
  table.Add("rsqrt.approx.ftz.f32", [](float a) {
    return Flush(static_cast<float>(1 / std::sqrt(static_cast<double>(Flush(a)))));
  });
  table.Add("rcp.approx.ftz.f64", [](double a) { return UpperHalf(1 / Flush(a)); });
  table.Add("rsqrt.approx.ftz.f64", [](double a) { return UpperHalf(1 / std::sqrt(Flush(a))); });
}

// Out of range: the nearest. NaN: 0 between types of at most 32 bits, else the top bit alone.
template <typename To, typename From>
To ToInteger(From x) {
  if (std::isnan(x)) {
    return sizeof(From) == 4 && sizeof(To) < 8
               ? To{0}
               : static_cast<To>(uint64_t{1} << (8 * sizeof(To) - 1));
  }
  using Limits = std::numeric_limits<To>;
  const From end = std::ldexp(From{1}, Limits::digits);  // the greatest To and one
  if (x >= end) return Limits::max();
  if (x <= static_cast<From>(Limits::min())) return Limits::min();
  return static_cast<To>(x);
}

template <typename From>
void AddToIntegers(Table& table, const std::string& from) {
  ForIntegers([&](auto zero, const std::string& to) {
    using To = decltype(zero);
    const std::string types = to + "." + from;
    table.Add("cvt.rni." + types, [](From x) { return ToInteger<To>(std::nearbyint(x)); });
    table.Add("cvt.rzi." + types, [](From x) { return ToInteger<To>(std::trunc(x)); });
    table.Add("cvt.rmi." + types, [](From x) { return ToInteger<To>(std::floor(x)); });
    table.Add("cvt.rpi." + types, [](From x) { return ToInteger<To>(std::ceil(x)); });
  });
}

void AddConversions(Table& table) {
  ForIntegers([&](auto from_zero, const std::string& from) {
    using From = decltype(from_zero);
    ForIntegers([&](auto to_zero, const std::string& to) {
      using To = decltype(to_zero);
      table.Add("cvt." + to + "." + from, [](From x) { return static_cast<To>(x); });
    });
    table.Add("cvt.rn.f32." + from, [](From x) { return static_cast<float>(x); });
    table.Add("cvt.rn.f64." + from, [](From x) { return static_cast<double>(x); });
  });
  AddToIntegers<float>(table, "f32");
  AddToIntegers<double>(table, "f64");
  table.Add("cvt.sat.f32.f32",
            [](float x) { return std::isnan(x) ? 0.0f : std::clamp(x + 0.0f, 0.0f, 1.0f); });
  table.Add("cvt.rn.f32.f64", [](double x) { return static_cast<float>(x); });
  table.Add("cvt.f64.f32", [](float x) { return static_cast<double>(x); });
  table.Add("cvt.f32.f16", [](uint16_t x) { return half::HalfBitsToFloat(x); });
  table.Add("cvt.rn.f16.f32",
            [](float x) { return std::isnan(x) ? kHalfNan : half::FloatToHalfBits(x); });
  table.Add("cvt.rn.bf16.f32", [](float x) { return std::isnan(x) ? kHalfNan : bfloat16(x).bits; });
  // Addresses of device memory are the same in every space.
  table.Add("cvta.to.global.u64", [](uint64_t x) { return x; });
}

std::map<std::string, Opcode, std::less<>> MakeOpcodes() {
  Table table;
  AddIntegers<int16_t>(table, "s16");
  AddIntegers<uint16_t>(table, "u16");
  AddIntegers<int32_t>(table, "s32");
  AddIntegers<uint32_t>(table, "u32");
  AddIntegers<int64_t>(table, "s64");
  AddIntegers<uint64_t>(table, "u64");
  AddBits<uint16_t>(table, "b16");
  AddBits<uint32_t>(table, "b32");
  AddBits<uint64_t>(table, "b64");
  AddPredicates(table);
  AddTime(table);
  AddMoves<uint16_t>(table, {"b16", "u16", "s16"});
  AddMoves<uint32_t>(table, {"b32", "u32", "s32", "f32"});
  AddMoves<uint64_t>(table, {"b64", "u64", "s64", "f64"});
  table.AddHalves<uint32_t, uint16_t>("b32");
  table.AddHalves<uint64_t, uint32_t>("b64");
  AddCarries(table);
  table.Add("prmt.b32", [](uint32_t a, uint32_t b, uint32_t c) { return Permute(a, b, c); });
  AddFloats<float>(table, "f32");
  AddFloats<double>(table, "f64");
  AddOtherRoundings(table);
  AddApproximations(table);
  AddConversions(table);
  AddMemoryOpcodes(&table.opcodes());
  return std::move(table.opcodes());
}

}  // namespace

const Opcode* FindOpcode(std::string_view name) {
  static const std::map<std::string, Opcode, std::less<>> opcodes = MakeOpcodes();
  const auto found = opcodes.find(name);
  return found == opcodes.end() ? nullptr : &found->second;
}

}  // namespace monograph::ptx
