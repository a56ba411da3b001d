// Checks of gradients in a local session, in which placeholders of doubles are the xs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "client/registries.h"
#include "graph/gradients.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "tests/client/session_fixture.h"

namespace monograph {

class GradientTest : public LocalSessionTest {
 protected:
  using Feeds = std::vector<std::pair<Output, Tensor>>;

  Output Feed(const char* name, const Shape& shape = {}) {
    return Placeholder(root_.WithOpName(name), DT_DOUBLE, shape);
  }
  Output Count(const char* name) { return Placeholder(root_.WithOpName(name), DT_INT32, {}); }
  Tensor Value(const Output& of, const Feeds& feeds) {
    const Result<std::vector<Tensor>> values = session().Run(feeds, {of});
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? values->at(0) : Tensor::Scalar(-1e9);
  }
  // d(sum of y)/dx for each of xs, at these values, against differences.
  void Check(const Output& y, const Outputs& xs, const std::vector<Tensor>& at, Feeds others = {},
             const std::vector<bool>& reached = {}) {
    const auto gradients = AddGradients(root_, {{y}}, xs);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    const Output sum =
        Sum(root_, y, Range(root_, Const(root_, 0), Rank(root_, y), Const(root_, 1)));
    ASSERT_TRUE(root_.ok()) << root_.status();
    for (size_t i = 0; i < xs.size(); ++i) {
      if (i < reached.size() && !reached[i]) {
        EXPECT_FALSE(gradients->at(i).valid());
        continue;
      }
      Feeds feeds = others;
      for (size_t k = 0; k < xs.size(); ++k) feeds.emplace_back(xs[k], at[k]);
      const Tensor found = Value(gradients->at(i), feeds);
      ASSERT_EQ(found.shape().ToString(), at[i].shape().ToString());
      constexpr double kStep = 1e-5;
      for (int64_t e = 0; e < at[i].elements(); ++e) {
        double ends[2];
        for (const int side : {0, 1}) {
          Tensor moved = at[i].Clone().value();
          moved.data<double>()[e] += side == 0 ? -kStep : kStep;
          feeds[others.size() + i].second = moved;
          ends[side] = Value(sum, feeds).scalar<double>();
        }
        const double slope = (ends[1] - ends[0]) / (2 * kStep);
        EXPECT_NEAR(found.data<double>()[e], slope, 1e-5 * std::max(1.0, std::fabs(slope)))
            << xs[i].name() << ", element " << e;
      }
    }
  }
};

}  // namespace monograph
