// Updates of some rows of a variable: against the dense update of the same op on those rows.
#include <algorithm>
#include <cmath>

#include "tests/ops/variable_fixture.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

// An optimizer's sparse op, and what surrounds the gradient in its inputs.
struct Update {
  std::string sparse, dense;
  int slots;
  std::vector<float> before, after;  // coefficients before and after the gradient
  Attrs attrs = {};
};

const std::vector<Update>& Updates() {
  static const std::vector<Update> updates = {
      {"ResourceSparseApplyMomentum", "ResourceApplyMomentum", 1, {0.1f}, {0.9f}},
      {"ResourceSparseApplyMomentum",
       "ResourceApplyMomentum",
       1,
       {0.1f},
       {0.9f},
       {{"use_nesterov", true}}},
      {"ResourceSparseApplyKerasMomentum", "ResourceApplyKerasMomentum", 1, {0.1f}, {0.9f}},
      {"ResourceSparseApplyKerasMomentum",
       "ResourceApplyKerasMomentum",
       1,
       {0.1f},
       {0.9f},
       {{"use_nesterov", true}}},
      {"ResourceSparseApplyAdagrad", "ResourceApplyAdagrad", 1, {0.3f}, {}},
      {"ResourceSparseApplyAdagrad",
       "ResourceApplyAdagrad",
       1,
       {0.3f},
       {},
       {{"update_slots", false}}},
      {"ResourceSparseApplyAdagradV2", "ResourceApplyAdagradV2", 1, {0.3f, 0.1f}, {}},
      {"ResourceSparseApplyRMSProp", "ResourceApplyRMSProp", 2, {0.1f, 0.9f, 0.5f, 1e-2f}, {}},
      {"ResourceSparseApplyCenteredRMSProp",
       "ResourceApplyCenteredRMSProp",
       3,
       {0.1f, 0.9f, 0.5f, 2.0f},
       {}},
  };
  return updates;
}

template <typename T>
Tensor Positive(const Shape& shape, uint64_t seed) {
  Tensor tensor = Random<T>(shape, seed);
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<T>()[i] = T(std::fabs(static_cast<float>(tensor.data<T>()[i])) + 0.5f);
  return tensor;
}

template <typename T>
Tensor RowsOf(const Tensor& tensor, const std::vector<int64_t>& rows) {
  const int64_t columns = tensor.shape()[1];
  Tensor out = Tensor::Allocate(kDTypeOf<T>, {static_cast<int64_t>(rows.size()), columns}).value();
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t k = 0; k < columns; ++k)
      out.data<T>()[static_cast<int64_t>(i) * columns + k] =
          std::as_const(tensor).data<T>()[rows[i] * columns + k];
  }
  return out;
}

class SparseUpdateTest : public VariableTest {
 protected:
  template <typename T>
  Status Apply(const Update& update, const std::string& op, std::vector<Tensor> inputs,
               const std::vector<Tensor>& gradient) {
    const auto coefficient = [](float value) {
      Tensor scalar = Tensor::Allocate(kDTypeOf<T>, Shape()).value();
      *scalar.data<T>() = T(value);
      return scalar;
    };
    for (float value : update.before) inputs.push_back(coefficient(value));
    inputs.insert(inputs.end(), gradient.begin(), gradient.end());
    for (float value : update.after) inputs.push_back(coefficient(value));
    return Run(op, std::move(inputs), update.attrs).status();
  }

  // The rows that are named change as the dense op would change them, the others not at all.
  template <typename T>
  void ExpectRowsUpdated(const Update& update, const Tensor& indices,
                         const std::vector<int64_t>& rows) {
    const Shape shape{6, 3};
    const Tensor gradient = Random<T>({static_cast<int64_t>(rows.size()), 3}, 7);
    std::vector<Tensor> whole, some, initial;
    const std::string tag = update.sparse + std::to_string(tests_++);
    for (int i = 0; i <= update.slots; ++i) {
      initial.push_back(Positive<T>(shape, static_cast<uint64_t>(i) + 1));
      whole.push_back(Make(tag + "/whole" + std::to_string(i), initial.back()));
      some.push_back(Make(tag + "/some" + std::to_string(i), RowsOf<T>(initial.back(), rows)));
    }
    Status status = Apply<T>(update, update.sparse, whole, {gradient, indices});
    ASSERT_TRUE(status.ok()) << status;
    status = Apply<T>(update, update.dense, some, {gradient});
    ASSERT_TRUE(status.ok()) << status;
    std::vector<int64_t> others;
    for (int64_t row = 0; row < 6; ++row)
      if (std::find(rows.begin(), rows.end(), row) == rows.end()) others.push_back(row);
    for (size_t i = 0; i < whole.size(); ++i) {
      const Tensor value = Read(whole[i], kDTypeOf<T>);
      EXPECT_TRUE(BitEqual(RowsOf<T>(value, rows), Read(some[i], kDTypeOf<T>))) << update.sparse;
      EXPECT_TRUE(BitEqual(RowsOf<T>(value, others), RowsOf<T>(initial[i], others)));
    }
  }

  int tests_ = 0;
};

TEST_F(SparseUpdateTest, RowsChangeAsTheDenseUpdateWouldChangeThemAndOthersStay) {
  for (const Update& update : Updates()) {
    ExpectRowsUpdated<float>(update, Tensor::Vector<int32_t>({4, 0, 2}), {4, 0, 2});
    ExpectRowsUpdated<double>(update, Tensor::Vector<int64_t>({5, 1}), {5, 1});
    ExpectRowsUpdated<half>(update, Tensor::Vector<int64_t>({3}), {3});
    ExpectRowsUpdated<bfloat16>(update, Tensor::Vector<int32_t>({3}), {3});
    ExpectRowsUpdated<float>(
        update, Tensor::FromValues<int32_t>(Shape{0}, std::initializer_list<int32_t>{}), {});
  }
}

TEST_F(SparseUpdateTest, AnIndexThatRepeatsIsUpdatedOncePerRow) {
  const Tensor var = Make("var", Tensor::FromValues<float>({2, 1}, {1, 2})),
               accum = Make("accum", Tensor::FromValues<float>({2, 1}, {0, 0}));
  ASSERT_TRUE(Run("ResourceSparseApplyMomentum",
                  {var, accum, Scalar(0.5f), Tensor::FromValues<float>({2, 1}, {1, 2}),
                   Tensor::Vector<int32_t>({1, 1}), Scalar(0.5f)})
                  .ok());
  // accum: 1, then 0.5 + 2; var: 2 - 0.5, then - 1.25.
  EXPECT_TRUE(BitEqual(Read(accum), Tensor::FromValues<float>({2, 1}, {0, 2.5f})));
  EXPECT_TRUE(BitEqual(Read(var), Tensor::FromValues<float>({2, 1}, {1, 0.25f})));
}

TEST_F(SparseUpdateTest, ASnapshotStaysAsItWas) {
  const Tensor value = Tensor::FromValues<float>({2, 1}, {1, 2});
  const Tensor var = Make("var", value), accum = Make("accum", value);
  const Tensor snapshot = Read(var);
  ASSERT_TRUE(Run("ResourceSparseApplyAdagrad",
                  {var, accum, Scalar(1), Tensor::FromValues<float>({1, 1}, {1}),
                   Tensor::Vector<int32_t>({0})})
                  .ok());
  EXPECT_TRUE(BitEqual(snapshot, value));
  EXPECT_FALSE(BitEqual(Read(var), value));
}

TEST_F(SparseUpdateTest, MistakesAreNamedAndNothingIsUpdated) {
  const Tensor value = Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor var = Make("var", value), accum = Make("accum", value),
               other = Make("other", Floats({1, 2}));
  const auto apply = [&](const Tensor& slot, const Tensor& rows, const Tensor& indices) {
    return Run("ResourceSparseApplyAdagrad", {var, slot, Scalar(1), rows, indices})
        .status()
        .message();
  };
  const Tensor row = Tensor::FromValues<float>({1, 2}, {1, 1});
  EXPECT_NE(apply(accum, row, Tensor::Vector<int32_t>({3})).find("indices[0] = 3 is not in [0, 3)"),
            std::string::npos);
  EXPECT_NE(apply(accum, row, Tensor::Vector<int32_t>({-1})).find("indices[0] = -1"),
            std::string::npos);
  EXPECT_NE(apply(accum, row, Tensor::Vector<int32_t>({1, 2})).find("1 rows of a gradient but 2"),
            std::string::npos);
  EXPECT_NE(apply(accum, Floats({1}), Tensor::Vector<int32_t>({1})).find("rows of shape [1]"),
            std::string::npos);
  EXPECT_NE(apply(other, row, Tensor::Vector<int32_t>({1})).find("'other' of shape [2]"),
            std::string::npos);
  EXPECT_TRUE(BitEqual(Read(var), value));
  EXPECT_TRUE(BitEqual(Read(accum), value));
}

}  // namespace
}  // namespace monograph
