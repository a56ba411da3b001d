// A graph, and a local session of it that is made when it is first asked for.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "client/session.h"

namespace monograph {

class LocalSessionTest : public ::testing::Test {
 protected:
  LocalSessionTest() : graph_(NewGraph()), root_(&graph_) {}

  // `options` count in the first call.
  Session& session(SessionOptions options = {}) {
    if (session_ == nullptr) {
      EXPECT_TRUE(root_.ok()) << root_.status();
      auto made = Session::Local(graph_, std::move(options));
      EXPECT_TRUE(made.ok()) << made.status();
      session_ = std::move(made).value();
    }
    return *session_;
  }

  Graph graph_;
  Scope root_;
  std::unique_ptr<Session> session_;
};

}  // namespace monograph
