// Which ways there are to compute a layer, and what the file of algorithms keeps of a choice.
#include "ops/gpu/layer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ops/gpu/found_algorithms.h"

namespace monograph::ops {
namespace {

using Ways = std::vector<std::string_view>;

LayerCall Pool(Layer layer, int64_t side, int64_t size, int64_t stride,
               const std::string& padding) {
  LayerCall call{.layer = layer, .image = {2, 8, side, side}};
  for (Window* w : {&call.rows, &call.columns}) {
    w->in = side, w->size = size, w->stride = stride;
    EXPECT_TRUE(PlaceWindow(padding, 1, 1, w).ok());
  }
  return call;
}

TEST(LayerWays, OfPoolingAreCudnnsWhereItPadsAlikeOnBothSides) {
  for (const Layer layer : {Layer::kMaxPool, Layer::kAvgPool, Layer::kAvgPoolGrad}) {
    EXPECT_EQ(LibraryWays(Pool(layer, 8, 2, 2, "VALID"), false), Ways{"cudnn"});
    EXPECT_EQ(LibraryWays(Pool(layer, 7, 3, 2, "SAME"), false), Ways{"cudnn"});  // 1 and 1
    EXPECT_EQ(LibraryWays(Pool(layer, 9, 3, 2, "VALID"), false), Ways{"cudnn"});
    EXPECT_EQ(LibraryWays(Pool(layer, 112, 3, 2, "EXPLICIT"), false), Ways{"cudnn"});
    EXPECT_EQ(LibraryWays(Pool(layer, 112, 3, 2, "SAME"), false), Ways{});  // 0 and 1
    EXPECT_EQ(LibraryWays(Pool(layer, 7, 2, 2, "SAME"), false), Ways{});
  }
}

TEST(LayerWays, OfAMaximumsGradientThatAddsAtomicallyIsNotDeterministic) {
  const LayerCall call = Pool(Layer::kMaxPoolGrad, 8, 3, 1, "VALID");
  EXPECT_EQ(LibraryWays(call, true), Ways{"cudnn"});
  EXPECT_EQ(LibraryWays(call, false), (Ways{"cudnn", "cudnn-atomic"}));
}

TEST(LayerWays, OfBatchNormalizationKeepNumbersInRange) {
  LayerCall call{.layer = Layer::kBatchNorm, .image = {4, 8, 3, 3}};
  EXPECT_EQ(LibraryWays(call, false), (Ways{"cudnn", "cudnn-persistent"}));
  call.nchw = true;
  EXPECT_EQ(LibraryWays(call, false), Ways{"cudnn"});
  call.image = {1, 8, 1, 1};
  EXPECT_EQ(LibraryWays(call, false), Ways{});
}

TEST(LayerWays, AreOnlyOurOwnForWhatCudnnCannotSay) {
  LayerCall call{.layer = Layer::kSoftmax, .image = {4, 10, 1, 1}};
  EXPECT_EQ(LibraryWays(call, true), (Ways{"cudnn", "cudnn-channel"}));
  for (const std::array<int64_t, 4>& image : {std::array<int64_t, 4>{0, 10, 1, 1},
                                              {4, 0, 1, 1},
                                              {int64_t{1} << 31, 1, 1, 1},
                                              {1 << 16, 1 << 15, 1, 1}}) {
    LayerCall other = call;
    other.image = image;
    EXPECT_EQ(LibraryWays(other, true), Ways{}) << ShapeText(other);
  }
  call.dtype = DT_DOUBLE;
  EXPECT_EQ(LibraryWays(call, true), Ways{});
  call.dtype = DT_BFLOAT16;
  EXPECT_EQ(LibraryWays(call, true).size(), 2u);
  call.in[0] = reinterpret_cast<const void*>(uintptr_t{4104});
  EXPECT_EQ(LibraryWays(call, true), Ways{});
}

TEST(LayerWays, WithoutASearchAreOurOwnOrOneOfThoseThatGiveTheSameBits) {
  for (const Layer layer :
       {Layer::kMaxPool, Layer::kMaxPoolGrad, Layer::kAvgPool, Layer::kAvgPoolGrad, Layer::kSoftmax,
        Layer::kLogSoftmax, Layer::kBatchNorm, Layer::kBatchNormGrad}) {
    LayerCall call = Pool(layer, 8, 2, 2, "VALID");
    const Ways ways = LibraryWays(call, true);
    const std::string_view way = UntimedWay(layer);
    EXPECT_TRUE(way == kOwnWay || std::find(ways.begin(), ways.end(), way) != ways.end()) << way;
  }
}

TEST(LayerWays, AreChosenForAShapeThatItsTextTellsFromAllOthers) {
  std::set<std::string> texts;
  const LayerCall call = Pool(Layer::kMaxPool, 9, 3, 2, "VALID");
  texts.insert(ShapeText(call));
  const auto differs = [&](auto change) {
    LayerCall other = call;
    change(other);
    EXPECT_NE(other.key(), call.key());
    EXPECT_TRUE(texts.insert(ShapeText(other)).second) << ShapeText(other);
  };
  differs([](LayerCall& c) { c.layer = Layer::kAvgPool; });
  differs([](LayerCall& c) { c.dtype = DT_HALF; });
  differs([](LayerCall& c) { c.nchw = true; });
  differs([](LayerCall& c) { c.image[0] = 3; });
  differs([](LayerCall& c) { c.image[1] = 3; });
  differs([](LayerCall& c) { c.image[2] = 3; });
  differs([](LayerCall& c) { c.image[3] = 3; });
  for (const bool row : {true, false}) {
    const auto window = [=](LayerCall& c) -> Window& { return row ? c.rows : c.columns; };
    differs([=](LayerCall& c) { window(c).size = 7; });
    differs([=](LayerCall& c) { window(c).stride = 7; });
    differs([=](LayerCall& c) { window(c).pad_before = 7; });
    differs([=](LayerCall& c) { window(c).out = 7; });
  }
  differs([](LayerCall& c) { c.in[0] = reinterpret_cast<const void*>(uintptr_t{8}); });
}

class FoundFile : public ::testing::Test {
 protected:
  ~FoundFile() override { std::remove(file_.c_str()); }
  std::string Text() const {
    std::ifstream in(file_);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
  void Write(const std::string& text) { std::ofstream(file_) << text; }

  const std::string file_ = ::testing::TempDir() + "found_algorithms_" + std::to_string(getpid());
};

TEST_F(FoundFile, IsReadByALaterProcess) {
  FoundAlgorithms first, second;
  EXPECT_EQ(first.Look(file_, "pool", "a GPU 1 2"), std::nullopt);
  first.Keep(file_, "pool", "a GPU 1 2", "own");
  first.Keep(file_, "conv", "a GPU 1 2", "12;3=4");
  EXPECT_EQ(Text(), "pool 1\ta GPU 1 2\town\nconv 1\ta GPU 1 2\t12;3=4\n");
  EXPECT_EQ(second.Look(file_, "pool", "a GPU 1 2"), "own");
  EXPECT_EQ(second.Look(file_, "conv", "a GPU 1 2"), "12;3=4");
  EXPECT_EQ(second.Look(file_, "norm", "a GPU 1 2"), std::nullopt);
}

TEST_F(FoundFile, MayHaveLinesThatNobodyUnderstandsOrThatAreOld) {
  Write(
      "\n\t\t\npool 0\told\town\npool 1\tno choice\nrubbish\npool 1\tgood\tcudnn\n"
      "pool 1\tgood\town\npool 1\tcut off");
  FoundAlgorithms found;
  EXPECT_EQ(found.Look(file_, "pool", "old"), std::nullopt);
  EXPECT_EQ(found.Look(file_, "pool", "no choice"), std::nullopt);
  EXPECT_EQ(found.Look(file_, "pool", "cut off"), std::nullopt);
  EXPECT_EQ(found.Look(file_, "pool", "good"), "own");
}

TEST_F(FoundFile, IsNotThatOfAnotherSession) {
  FoundAlgorithms found;
  found.Keep("", "pool", "shape", "cudnn");
  EXPECT_EQ(found.Look(file_, "pool", "shape"), std::nullopt);
  EXPECT_EQ(found.Look("", "pool", "shape"), "cudnn");
  found.Keep(file_, "pool", "shape", "own");
  EXPECT_EQ(found.Look("", "pool", "shape"), "cudnn");
}

TEST_F(FoundFile, ThatCannotBeWrittenCostsNothingButItself) {
  FoundAlgorithms found;
  const std::string nowhere = file_ + ".none/found";
  found.Keep(nowhere, "pool", "shape", "own");
  EXPECT_EQ(found.Look(nowhere, "pool", "shape"), "own");
}

}  // namespace
}  // namespace monograph::ops
