// Outputs of strings count against the limit of memory from the end of their kernels on, whatever
// the kernels ask for.
#include <gtest/gtest.h>

#include <string>

#include "base/pool_allocator.h"
#include "graph/shape_inference.h"
#include "tests/executor/test_ops.h"

namespace monograph {
namespace {

using testing::Builder;
using testing::RunStep;
using testing::TestTask;

constexpr int64_t kSize = 1000;

// A string of kSize bytes.
class TextKernel : public Kernel {
 public:
  explicit TextKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, Shape()));
    y->strings()->assign(kSize, 'a');
    return Status();
  }
};

Status Twice(KernelContext& c) {
  MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, Shape()));
  *y->strings() = *c.input(0).strings() + *c.input(0).strings();
  return Status();
}

class TwiceKernel : public Kernel {
 public:
  explicit TwiceKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override { return Twice(c); }
};

class AsyncTwiceKernel : public AsyncKernel {
 public:
  explicit AsyncTwiceKernel(const KernelConstruction&) {}
  void ComputeAsync(KernelContext& c, Done done) override { done(Twice(c)); }
};

// Asks for room until there is none, as a kernel does that would make far too much.
class EndlessKernel : public Kernel {
 public:
  explicit EndlessKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, Shape()));
    *y->strings() = "unfinished";
    for (int i = 0; i < 1'000'000; ++i) {
      if (!c.RoomForStrings(1 << 16)) return Status();
    }
    return Internal("nobody has stopped it");
  }
};

class SizeKernel : public Kernel {
 public:
  explicit SizeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, Shape()));
    *y->data<float>() = static_cast<float>(c.input(0).strings()->size());
    return Status();
  }
};

Status OneScalar(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  return Status();
}

class StringsTest : public ::testing::Test {
 protected:
  StringsTest() : task_(2) {
    OpRegistry& ops = task_.ops();
    ops.Add(OpDef("TText").Output("y: string").Stateful().Shape(OneScalar));
    for (const char* op : {"TTwice", "TSerialTwice", "TAsyncTwice", "TEndless"})
      ops.Add(OpDef(op).Input("x: string").Output("y: string").Shape(OneScalar));
    ops.Add(OpDef("TSize").Input("x: string").Output("y: float").Shape(OneScalar));
    KernelRegistry& kernels = task_.kernels();
    kernels.Add<TextKernel>({.op = "TText"});
    kernels.Add<TwiceKernel>({.op = "TTwice"});
    kernels.Add<TwiceKernel>({.op = "TSerialTwice", .serial = true});
    kernels.Add<AsyncTwiceKernel>({.op = "TAsyncTwice"});
    kernels.Add<EndlessKernel>({.op = "TEndless"});
    kernels.Add<SizeKernel>({.op = "TSize"});
    // Free blocks that earlier tests have left give way.
    HostPool().SetLimit(HostPool().bytes_in_use() + reserved_ + (64 << 20));
  }
  ~StringsTest() override {
    EXPECT_EQ(HostPool().bytes_reserved(), reserved_);
    HostPool().SetLimit(limit_);
  }

  // One step that runs `op` so often, each time on what it has put out.
  Result<float> SizeAfter(const char* op, int times) {
    Graph graph = task_.NewGraph();
    Builder builder(&graph);
    Endpoint text = builder.Op("TText");
    for (int i = 0; i < times; ++i) text = builder.Op(op, {text});
    builder.Send(0, builder.Op("TSize", {text}));
    MG_ASSIGN_OR_RETURN(const auto plan, task_.Compile(graph));
    MG_ASSIGN_OR_RETURN(const auto sent, RunStep(plan));
    return sent.at(0);
  }

  const int64_t limit_ = HostPool().limit(), reserved_ = HostPool().bytes_reserved();
  TestTask task_;
};

TEST_F(StringsTest, ThatDoubleAreRefusedOncePastTheLimitAndTheirNodeIsNamed) {
  for (const char* op : {"TTwice", "TSerialTwice", "TAsyncTwice"}) {
    const Result<float> fits = SizeAfter(op, 10);
    ASSERT_TRUE(fits.ok()) << op << ": " << fits.status();
    EXPECT_EQ(*fits, 1024.0f * kSize);
    const Status refused = SizeAfter(op, 30).status();
    EXPECT_EQ(refused.code(), Code::kResourceExhausted) << op << ": " << refused;
    for (const std::string& text :
         {"(" + std::string(op) + ") on " + testing::kCpu0, std::string("--memory_limit")})
      EXPECT_NE(refused.message().find(text), std::string::npos) << refused;
    EXPECT_TRUE(SizeAfter(op, 10).ok());  // what was there has been given back
  }
}

TEST_F(StringsTest, OfAKernelThatAsksAreRefusedBeforeTheyAreThere) {
  const Status refused = SizeAfter("TEndless", 1).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused;
  EXPECT_NE(refused.message().find("(TEndless)"), std::string::npos) << refused;
}

}  // namespace
}  // namespace monograph
