// The interpreter of PTX: single instructions on chosen values, then control flow, memory and its
// errors. The expected values are those of the PTX ISA.
#include "tests/gpu/emulated/ptx.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace monograph::ptx {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string Module1(const std::string& entries) {
  return ".version 9.0\n.target sm_90\n.address_size 64\n" + entries;
}

// A kernel `k` of parameters p0, p1, ... (u64), with registers of each kind.
std::string Entry(int parameters, const std::string& body, const std::string& directives = "") {
  std::string text = ".visible .entry k(";
  for (int i = 0; i < parameters; ++i)
    text += std::string(i == 0 ? "" : ", ") + ".param .u64 p" + std::to_string(i);
  return Module1(text + ")\n" + directives +
                 "{\n.reg .pred %p<8>;\n.reg .b16 %rs<8>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<16>;\n"
                 ".reg .f32 %f<16>;\n.reg .f64 %fd<16>;\n" +
                 body + "\nret;\n}\n");
}

Status RunText(const std::string& text, const LaunchDims& dims, std::vector<uint64_t> arguments,
               const LaunchOptions& options = {}) {
  const auto module = Module::Parse(text);
  if (!module.ok()) return module.status();
  const Kernel* const kernel = (*module)->Find("k");
  EXPECT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->parameters.size(), arguments.size());
  std::vector<void*> pointers;
  for (uint64_t& argument : arguments) pointers.push_back(&argument);
  return Launch(*kernel, dims, pointers.data(), options);
}

uint64_t At(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// What one instruction makes of a, b and c in registers of `kind` ("f", "r", ...).
uint64_t Compute(const std::string& instruction, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
  uint64_t result = 0;
  const Status status =
      RunText(Entry(4,
                    "ld.param.u64 %rd1, [p0];\nld.param.u64 %rd2, [p1];\nld.param.u64 %rd3, [p2];\n"
                    "ld.param.u64 %rd4, [p3];\nld.param.u32 %f1, [p1];\nld.param.u32 %f2, [p2];\n"
                    "ld.param.u32 %f3, [p3];\nmov.u64 %rd0, 0;\n" +
                        instruction + "\nst.global.u64 [%rd1], %rd0;"),
              {}, {At(&result), a, b, c});
  EXPECT_TRUE(status.ok()) << status;
  return result;
}
float ComputeFloat(const std::string& opcode, float a, float b = 0, float c = 0) {
  const int operands = opcode.starts_with("fma") ? 3 : b == 0 ? 1 : 2;
  const char* const list[] = {"%f1", "%f1, %f2", "%f1, %f2, %f3"};
  const auto bits = [](float x) { return uint64_t{std::bit_cast<uint32_t>(x)}; };
  return std::bit_cast<float>(static_cast<uint32_t>(
      Compute(opcode + " %f0, " + list[operands - 1] + ";\nmov.b64 %rd0, {%f0, 0};", bits(a),
              bits(b), bits(c))));
}

TEST(PtxTest, IntegersWrapAroundAndExtendTheirSigns) {
  EXPECT_EQ(Compute("add.s64 %rd0, %rd2, -1;", 0), ~uint64_t{0});
  EXPECT_EQ(Compute("mul.wide.s32 %rd0, %rd2, %rd3;", 0xfffffffe, 3), static_cast<uint64_t>(-6));
  EXPECT_EQ(Compute("mul.wide.u32 %rd0, %rd2, %rd3;", 0xfffffffe, 3), 0x2fffffffaU);
  EXPECT_EQ(Compute("mul.hi.u64 %rd0, %rd2, %rd3;", uint64_t{1} << 63, 6), 3u);
  EXPECT_EQ(Compute("cvt.s64.s32 %rd0, %rd2;", 0x80000000), 0xffffffff80000000u);
  EXPECT_EQ(Compute("cvt.u64.u32 %rd0, %rd2;", 0xfff80000000), 0x80000000u);
  EXPECT_EQ(Compute("shl.b64 %rd0, %rd2, 64;", 1), 0u);
  EXPECT_EQ(Compute("shr.s64 %rd0, %rd2, 99;", ~uint64_t{0} << 63), ~uint64_t{0});
  EXPECT_EQ(Compute("div.s64 %rd0, %rd2, %rd3;", static_cast<uint64_t>(-7), 2),
            static_cast<uint64_t>(-3));
  EXPECT_EQ(Compute("rem.s64 %rd0, %rd2, %rd3;", static_cast<uint64_t>(-7), 2),
            static_cast<uint64_t>(-1));
  EXPECT_EQ(Compute("div.s64 %rd0, %rd2, %rd3;", uint64_t{1} << 63, ~uint64_t{0}),
            uint64_t{1} << 63);
  EXPECT_EQ(Compute("max.s64 %rd0, %rd2, %rd3;", ~uint64_t{0}, 1), 1u);
  EXPECT_EQ(Compute("max.u64 %rd0, %rd2, %rd3;", ~uint64_t{0}, 1), ~uint64_t{0});
  EXPECT_EQ(Compute("bfi.b64 %rd0, %rd2, %rd3, 8, 16;", 0xabcdef, ~uint64_t{0}),
            0xffffffffffcdefffu);
  EXPECT_EQ(Compute("prmt.b32 %rd0, %rd2, %rd3, 0x7a10;", 0x84838281, 0x18171615), 0x18ff8281u);
  EXPECT_EQ(Compute("clz.b64 %rd0, %rd2;", 1), 63u);
  EXPECT_EQ(Compute("mov.b64 {%r1, %r2}, %rd2;\nmov.b64 %rd0, {%r2, %r1};", 0x100000002),
            0x200000001u);
  EXPECT_EQ(Compute("mov.b32 {%rs1, %rs2}, %rd2;\nmov.b32 %rd0, {%rs2, %rs1};", 0x10002), 0x20001u);
}

TEST(PtxTest, CarriesGoFromOneInstructionToTheNext) {
  const std::string wide =
      "mov.b64 {%r1, %r2}, %rd2;\nmov.b64 {%r3, %r4}, %rd3;\n"
      "add.cc.u32 %r5, %r1, %r3;\naddc.u32 %r6, %r2, %r4;\nmov.b64 %rd0, {%r5, %r6};";
  EXPECT_EQ(Compute(wide, 0xffffffff, 1), 0x100000000u);
  const std::string less =
      "mov.b64 {%r1, %r2}, %rd2;\nmov.b64 {%r3, %r4}, %rd3;\n"
      "sub.cc.u32 %r5, %r1, %r3;\nsubc.u32 %r6, %r2, %r4;\nmov.b64 %rd0, {%r5, %r6};";
  EXPECT_EQ(Compute(less, 0x100000000, 1), 0xffffffffu);
  const std::string product =
      "mov.u32 %r1, 1;\nmad.lo.cc.u32 %r5, %rd2, %rd3, %r1;\nmadc.hi.u32 %r6, %rd2, %rd3, 0;\n"
      "mov.b64 %rd0, {%r5, %r6};";
  EXPECT_EQ(Compute(product, 0xffffffff, 0xffffffff), uint64_t{0xffffffff} * 0xffffffff + 1);
}

TEST(PtxTest, FloatsRoundAsTheInstructionSays) {
  const float tiny = std::ldexp(1.0f, -30);
  EXPECT_EQ(ComputeFloat("add.rn.f32", 1, -tiny), 1.0f);
  EXPECT_EQ(ComputeFloat("add.rz.f32", 1, -tiny), std::nextafter(1.0f, 0.0f));
  EXPECT_EQ(ComputeFloat("fma.rn.f32", 1, -tiny, 1), 1.0f);
  EXPECT_EQ(ComputeFloat("fma.rm.f32", 1, -tiny, 1), std::nextafter(1.0f, 0.0f));
  EXPECT_EQ(ComputeFloat("fma.rm.f32", 1, tiny, -1), -1.0f);
  // One rounding: the product of 1 + 2^-12 with itself has a bit at 2^-24.
  const float edge = 1 + std::ldexp(1.0f, -12);
  EXPECT_EQ(ComputeFloat("fma.rn.f32", edge, edge, -1),
            std::ldexp(1.0f, -11) + std::ldexp(1.0f, -24));
  EXPECT_EQ(ComputeFloat("cvt.rni.f32.f32", 2.5f), 2.0f);
  EXPECT_EQ(ComputeFloat("cvt.rmi.f32.f32", -2.5f), -3.0f);
  EXPECT_EQ(ComputeFloat("cvt.sat.f32.f32", 1.5f), 1.0f);
  EXPECT_EQ(ComputeFloat("ex2.approx.ftz.f32", 3), 8.0f);
  EXPECT_EQ(ComputeFloat("rsqrt.approx.ftz.f32", 16), 0.25f);
  EXPECT_EQ(ComputeFloat("rcp.approx.ftz.f32", std::ldexp(1.0f, 127)), 0.0f);
  EXPECT_EQ(ComputeFloat("copysign.f32", -1, 3), -3.0f);
}

TEST(PtxTest, NotANumberHasAGpusBitsAndConvertsAsThere) {
  const uint64_t nan = 0x7fc01234, infinity = 0x7f800000;
  EXPECT_EQ(Compute("add.rn.f32 %rd0, %f1, %f2;", nan, 0), 0x7fffffffu);
  EXPECT_EQ(Compute("neg.f32 %rd0, %f1;", nan), 0xffc01234u);
  EXPECT_EQ(Compute("cvt.rzi.s32.f32 %rd0, %f1;", nan), 0u);
  EXPECT_EQ(Compute("cvt.rzi.s64.f32 %rd0, %f1;", nan), uint64_t{1} << 63);
  EXPECT_EQ(Compute("cvt.rzi.s64.f32 %rd0, %f1;", infinity), ~uint64_t{0} >> 1);
  EXPECT_EQ(Compute("cvt.rzi.u32.f32 %rd0, %f1;", std::bit_cast<uint32_t>(-3.0f)), 0u);
  EXPECT_EQ(Compute("setp.ltu.f32 %p1, %f1, %f2;\nselp.u64 %rd0, 1, 2, %p1;", nan, 0), 1u);
  EXPECT_EQ(Compute("setp.ne.f32 %p1, %f1, %f2;\nselp.u64 %rd0, 1, 2, %p1;", nan, 0), 2u);
  EXPECT_EQ(Compute("cvt.rn.f16.f32 %rd0, %f1;", std::bit_cast<uint32_t>(65520.0f)), 0x7c00u);
  EXPECT_EQ(Compute("cvt.rn.f16.f32 %rd0, %f1;", nan), 0x7fffu);
  EXPECT_EQ(Compute("cvt.rn.bf16.f32 %rd0, %f1;", 0x3f808000), 0x3f80u);  // half way: to even
  EXPECT_EQ(Compute("cvt.rn.bf16.f32 %rd0, %f1;", 0x3f818000), 0x3f82u);
  EXPECT_EQ(Compute("cvt.rn.bf16.f32 %rd0, %f1;", 0x7f7fffff), 0x7f80u);
  EXPECT_EQ(Compute("cvt.rn.bf16.f32 %rd0, %f1;", 0xff800001), 0x7fffu);
}

constexpr char kIndex[] =
    "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
    "mad.lo.s32 %r4, %r1, %r2, %r3;\n";

TEST(PtxTest, ThreadsGoTheirOwnWays) {
  // Thread i adds up 0 to i, and even ones negate it.
  const std::string body = std::string(kIndex) + R"(
      ld.param.u64 %rd1, [p0];
      mul.wide.u32 %rd2, %r4, 4;
      add.s64 %rd1, %rd1, %rd2;
      mov.u32 %r5, 0;
      mov.u32 %r6, 0;
    $again:
      add.s32 %r5, %r5, %r6;
      add.s32 %r6, %r6, 1;
      setp.le.u32 %p1, %r6, %r4;
      @%p1 bra $again;
      and.b32 %r7, %r4, 1;
      setp.eq.s32 %p2, %r7, 0;
      @!%p2 bra $odd;
      neg.s32 %r5, %r5;
    $odd:
      st.global.u32 [%rd1], %r5;)";
  std::vector<int32_t> sums(60);
  ASSERT_TRUE(RunText(Entry(1, body), {{3, 1, 1}, {20, 1, 1}}, {At(sums.data())}).ok());
  for (int i = 0; i < 60; ++i)
    EXPECT_EQ(sums[static_cast<size_t>(i)], (i % 2 == 0 ? -1 : 1) * i * (i + 1) / 2);
}

// The sum of a block's 64 elements by halves, in shared memory.
std::string BlockSum(const std::string& barrier) {
  return Entry(2, std::string(kIndex) + R"(
      .shared .align 16 .b8 memory[256];
      ld.param.u64 %rd1, [p0];
      ld.param.u64 %rd2, [p1];
      mul.wide.u32 %rd3, %r4, 4;
      add.s64 %rd1, %rd1, %rd3;
      ld.global.u32 %r5, [%rd1];
      mov.u32 %r6, memory;
      shl.b32 %r7, %r3, 2;
      add.s32 %r6, %r6, %r7;
      st.shared.u32 [%r6], %r5;
      mov.u32 %r8, 32;
    $half:
      bar.sync 0;
      setp.ge.u32 %p1, %r3, %r8;
      @%p1 bra $wait;
      shl.b32 %r9, %r8, 2;
      add.s32 %r9, %r6, %r9;
      ld.shared.u32 %r10, [%r9];
      ld.shared.u32 %r11, [%r6];
      add.s32 %r10, %r10, %r11;
      )" + barrier + R"(
      st.shared.u32 [%r6], %r10;
    $wait:
      shr.u32 %r8, %r8, 1;
      setp.ne.s32 %p2, %r8, 0;
      @%p2 bra $half;
      setp.ne.s32 %p3, %r3, 0;
      @%p3 ret;
      mul.wide.u32 %rd3, %r1, 4;
      add.s64 %rd2, %rd2, %rd3;
      ld.shared.u32 %r12, [memory];
      st.global.u32 [%rd2], %r12;)",
               ".maxntid 64, 1, 1\n");
}

TEST(PtxTest, ABarrierPutsWritesBeforeReadsInEveryOrder) {
  std::vector<int32_t> numbers(192), sums(3);
  std::iota(numbers.begin(), numbers.end(), 1);
  for (const bool backward : {false, true}) {
    std::fill(sums.begin(), sums.end(), 0);
    LaunchOptions options;
    if (backward) options.order = [](size_t k, size_t n) { return n - 1 - k; };
    const Status status = RunText(BlockSum(""), {{3, 1, 1}, {64, 1, 1}},
                                  {At(numbers.data()), At(sums.data())}, options);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(sums, (std::vector<int32_t>{64 * 65 / 2, 64 * 65 / 2 + 64 * 64, 64 * 65 / 2 + 8192}));
  }
}

TEST(PtxTest, ABarrierThatNotAllReachIsAnError) {
  std::vector<int32_t> numbers(64), sums(1);
  const Status status = RunText(BlockSum("bar.sync 0;"), {{1, 1, 1}, {64, 1, 1}},
                                {At(numbers.data()), At(sums.data())});
  EXPECT_TRUE(Contains(status.message(), "does not come to this barrier")) << status;
  EXPECT_TRUE(Contains(status.message(), "thread (32, 0, 0)")) << status;
}

TEST(PtxTest, SharedMemoryWithoutABarrierIsARace) {
  const std::string body = std::string(kIndex) + R"(
      .shared .align 4 .b8 memory[8];
      st.shared.u32 [memory+4], %r3;)";
  const Status status = RunText(Entry(0, body), {{1, 1, 1}, {2, 1, 1}}, {});
  EXPECT_TRUE(Contains(status.message(), "another thread wrote it since the last barrier"))
      << status;
  EXPECT_TRUE(Contains(status.message(), "line 18 (st.shared.u32 [memory+4], %r3;)")) << status;
  EXPECT_TRUE(RunText(Entry(0, body), {{4, 1, 1}, {1, 1, 1}}, {}).ok());
}

TEST(PtxTest, AddressesThatAreWrongAreNamed) {
  alignas(16) char bytes[64] = {};
  const std::string load =
      "ld.param.u64 %rd1, [p0];\nld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];";
  LaunchOptions options;
  options.memory = [&](const void*) { return std::as_bytes(std::span(bytes)); };
  EXPECT_TRUE(RunText(Entry(1, load), {}, {At(bytes)}, options).ok());
  Status status = RunText(Entry(1, load), {}, {At(bytes) + 4}, options);
  EXPECT_TRUE(Contains(status.message(), "is not a multiple of 16")) << status;
  status = RunText(Entry(1, load), {}, {At(bytes) + 48}, options);
  EXPECT_TRUE(Contains(status.message(), "is in no block of the device's memory")) << status;
  status =
      RunText(Entry(0, ".shared .align 4 .b8 memory[8];\nld.shared.u32 %r1, [memory+8];"), {}, {});
  EXPECT_TRUE(Contains(status.message(), "address 0x8 is outside the 8 bytes")) << status;
}

TEST(PtxTest, FunctionsTakeAndGiveValuesAndHaveTheirOwnMemory) {
  const std::string text = Module1(R"(
    .func (.param .b64 result) square(.param .b64 x);
    .global .align 8 .b8 three[8] = {3, 0, 0, 0, 0, 0, 0, 0};
    .func (.param .b64 result) square(.param .b64 x) {
      .reg .b64 %rd<4>;
      .local .align 8 .b8 depot[16];
      ld.param.u64 %rd1, [x];
      mov.u64 %rd3, depot;
      st.local.u64 [%rd3+8], %rd1;
      ld.local.u64 %rd2, [%rd3+8];
      mul.lo.s64 %rd1, %rd1, %rd2;
      st.param.b64 [result], %rd1;
      ret;
    }
    .visible .entry k(.param .u64 to) {
      .reg .b64 %rd<4>;
      ld.param.u64 %rd1, [to];
      mov.u64 %rd2, three;
      ld.global.nc.u64 %rd2, [%rd2];
      { .reg .b32 temp_param_reg;
        .param .b64 param0;
        st.param.b64 [param0+0], %rd2;
        .param .b64 retval0;
        call.uni (retval0), square, (param0);
        ld.param.b64 %rd3, [retval0+0];
      }
      st.global.u64 [%rd1], %rd3;
      ret;
    })");
  uint64_t result = 0;
  LaunchOptions options;
  options.memory = [&](const void*) { return std::as_bytes(std::span(&result, 1)); };
  const Status status = RunText(text, {}, {At(&result)}, options);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(result, 9u);
}

TEST(PtxTest, TheClockGoesOn) {
  EXPECT_GT(Compute("mov.u64 %rd0, %globaltimer;", 0), 0u);
  EXPECT_LT(Compute("mov.u64 %rd5, %globaltimer;\nmov.u64 %rd6, %globaltimer;\n"
                    "sub.s64 %rd0, %rd6, %rd5;",
                    0),
            uint64_t{1} << 40);
}

TEST(PtxTest, WhatIsNotKnownIsAnErrorOfTheText) {
  const auto error = [](const std::string& text) {
    const auto module = Module::Parse(text);
    return module.ok() ? std::string() : module.status().message();
  };
  EXPECT_EQ(error(Entry(0, "shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;")),
            "PTX, line 12: the instruction 'shfl.sync.bfly.b32' is not known");
  EXPECT_EQ(error(Entry(0, "add.s32 %r1, %r2;")),
            "PTX, line 12: 'add.s32' has 2 operands instead of 3");
  EXPECT_EQ(error(Entry(0, "mov.u32 %r1, %r16;")), "PTX, line 12: '%r16' is not known");
  EXPECT_TRUE(Contains(error(Entry(0, "bra $nowhere;")), "there is no label $nowhere"));
  EXPECT_TRUE(Contains(error(Entry(0, "call f;")), "k calls f, which is not defined"));
}

TEST(PtxTest, ACounterGoesUpToItsEndAndStartsAgain) {
  // Each of 7 blocks writes down what the counter was.
  const std::string body =
      "mov.u32 %r1, %ctaid.x;\nld.param.u64 %rd1, [p0];\nld.param.u64 %rd2, [p1];\nmembar.gl;\n"
      "atom.global.inc.u32 %r2, [%rd1], 2;\nmul.wide.u32 %rd3, %r1, 4;\n"
      "add.s64 %rd2, %rd2, %rd3;\nst.global.u32 [%rd2], %r2;";
  uint32_t counter = 0;
  std::vector<uint32_t> seen(7);
  const Status status =
      RunText(Entry(2, body), {{7, 1, 1}, {1, 1, 1}}, {At(&counter), At(seen.data())});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen, (std::vector<uint32_t>{0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(counter, 1u);
}

TEST(PtxTest, AKernelThatComesBeforeItsTurnTouchesNoMemoryUntilItHasWaited) {
  uint32_t value = 0;
  const auto run = [&](const std::string& first, const std::string& last, bool programmatic) {
    const std::string body = "mov.u32 %r1, 7;\nld.param.u64 %rd1, [p0];\n" + first +
                             "st.global.u32 [%rd1], %r1;\n" + last;
    return RunText(Entry(1, body), {}, {At(&value)}, {.programmatic = programmatic}).message();
  };
  const std::string wait = "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\n";
  EXPECT_EQ(run("", "", /*programmatic=*/false), "");
  EXPECT_EQ(run(wait, "", /*programmatic=*/false), "");
  EXPECT_EQ(run(wait, "", /*programmatic=*/true), "");
  EXPECT_EQ(value, 7u);
  EXPECT_TRUE(Contains(run("", wait, true), "is touched before griddepcontrol.wait"));
  EXPECT_TRUE(Contains(run("ret;\n", wait, true), "the thread ends without griddepcontrol.wait"));
}

TEST(PtxTest, ALaunchThatNoGpuTakesIsAnError) {
  const std::string text = Entry(0, "", ".maxntid 64, 1, 1\n.minnctapersm 3\n");
  EXPECT_TRUE(RunText(text, {{1, 1, 1}, {64, 1, 1}}, {}).ok());
  EXPECT_TRUE(Contains(RunText(text, {{1, 1, 1}, {65, 1, 1}}, {}).message(), "at most 64"));
  EXPECT_TRUE(Contains(RunText(text, {{0, 1, 1}, {64, 1, 1}}, {}).message(), "without threads"));
}

TEST(PtxTest, ALoopWithoutAnEndIsAnError) {
  const Status status = RunText(Entry(0, "$on:\nbra.uni $on;"), {}, {});
  EXPECT_TRUE(Contains(status.message(), "it does not come to its end")) << status;
}

}  // namespace
}  // namespace monograph::ptx
