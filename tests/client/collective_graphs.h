// Graphs whose devices meet in collectives, for tests of what moves them.
#pragma once

#include <gtest/gtest.h>
#include <monograph/monograph.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "ops/cast/cast.h"
#include "ops/collective/collective.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "train/all_reduce.h"

namespace monograph::testing {

inline std::string Gpu(int i) { return "/device:GPU:" + std::to_string(i); }

inline std::vector<std::string> Gpus(int count) {
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) devices.push_back(Gpu(i));
  return devices;
}

// A sum of one float from each of `devices`.
inline Outputs SumOf(const Scope& root, const Output& x, const std::vector<std::string>& devices,
                     int instance, int key = 1, double timeout = 60) {
  const CollectiveGroup group{.size = static_cast<int>(devices.size()),
                              .key = key,
                              .members = devices,
                              .timeout_seconds = timeout};
  Outputs sums;
  for (const std::string& device : devices) {
    const Scope place = root.WithDevice(device);
    sums.push_back(CollectiveReduce(place, Add(place, x, x), group, instance));
  }
  return sums;
}

// Floats that no two ranks share, as `dtype`.
inline Output Input(const Scope& scope, DType dtype, const Shape& shape, int rank) {
  Tensor values = Tensor::Allocate(DT_FLOAT, shape).value();
  for (int64_t i = 0; i < shape.elements(); ++i)
    values.data<float>()[i] = static_cast<float>((i * 7 + rank * 13) % 101 + 1) /
                              static_cast<float>(1 + rank * 3 + i % 5);
  return Cast(scope, Const(scope, std::move(values)), dtype);
}

// Every kind, many types and sizes, in one step.
struct Everything {
  Everything(int ranks, const std::string& type) : graph(NewGraph()), root(&graph) {
    std::vector<std::string> devices;
    for (int i = 0; i < ranks; ++i) devices.push_back("/device:" + type + ":" + std::to_string(i));
    const CollectiveGroup group{.size = ranks, .key = 3, .members = devices, .timeout_seconds = 60};
    int instance = 1;
    const auto place = [&](int rank) {
      return root.WithDevice(devices[static_cast<size_t>(rank)]);
    };
    for (const DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32, DT_INT64}) {
      for (const char* op : {"Add", "Mul", "Max", "Min"}) {
        for (const int64_t size : {0, 1, 700}) {
          for (int rank = 0; rank < ranks; ++rank)
            fetches.push_back(CollectiveReduce(
                place(rank), Input(place(rank), dtype, Shape{size}, rank), group, instance, op));
          ++instance;
        }
      }
      for (int rank = 0; rank < ranks; ++rank) {
        fetches.push_back(CollectiveGather(
            place(rank), Input(place(rank), dtype, Shape{3 * rank, 5}, rank), group, instance));
      }
      ++instance;
      if (dtype != DT_BFLOAT16) {
        const int root_rank = instance % ranks;
        for (int rank = 0; rank < ranks; ++rank) {
          fetches.push_back(
              rank == root_rank
                  ? CollectiveBroadcastSend(place(rank), Input(place(rank), dtype, {40, 9}, rank),
                                            group, instance)
                  : CollectiveBroadcastRecv(place(rank), dtype, {40, 9}, group, instance));
        }
        ++instance;
      }
    }
    // Buckets of several tensors; what they give is computed with on the GPU, and one input has
    // another user.
    std::vector<Outputs> gradients;
    for (int rank = 0; rank < ranks; ++rank) {
      Outputs own;
      for (const int64_t size : {1, 0, 5000, 64, 70'001})
        own.push_back(Input(place(rank), DT_FLOAT, Shape{size}, rank));
      fetches.push_back(Neg(place(rank), own[2]));
      const Outputs sums = MonographAllReduce(place(rank), own, group, instance);
      for (const Output& sum : sums) fetches.push_back(Square(place(rank), sum));
    }
  }
  Graph graph;
  Scope root;
  Outputs fetches;
};

inline constexpr int64_t kTowerColumns = 40;

// A tower for each device: some nodes, a loss, two buckets that are summed over all, and what comes
// of the sums. `x` is fed, of any number of rows, and enters the sums as one row.
struct Towers {
  Towers(int ranks, const std::string& type, double timeout = 60)
      : graph(NewGraph()), root(&graph) {
    x = Placeholder(root, DT_FLOAT, {-1, kTowerColumns});
    own = Placeholder(root, DT_FLOAT, {-1});
    CollectiveGroup group{.size = ranks, .key = 1, .members = {}, .timeout_seconds = timeout};
    for (int i = 0; i < ranks; ++i)
      group.members.push_back("/device:" + type + ":" + std::to_string(i));
    for (int rank = 0; rank < ranks; ++rank) {
      const Scope place = root.WithDevice(group.members[static_cast<size_t>(rank)]);
      Output value = Mul(place, x, Const(place, static_cast<float>(rank + 1)));
      if (rank == 0) value = Add(place, value, Max(place, own, {0}));
      for (int i = 0; i < 4; ++i) value = Tanh(place, Add(place, value, value));
      losses.push_back(Max(place, value, {0, 1}));
      for (int instance = 1; instance <= 2; ++instance) {
        Outputs bucket;
        for (int i = 0; i < 2; ++i) {
          value = Square(place, Sub(place, value, Const(place, 0.25f)));
          bucket.push_back(Max(place, value, {0}));
        }
        for (const Output& sum : MonographAllReduce(place, bucket, group, instance))
          sums.push_back(Square(place, sum));
      }
    }
  }
  std::vector<Feed> Feeds(int64_t rows, float first, int64_t of_its_own = 1) const {
    Tensor values = Tensor::Allocate(DT_FLOAT, Shape{rows, kTowerColumns}).value();
    for (int64_t i = 0; i < rows * kTowerColumns; ++i)
      values.data<float>()[i] = first + static_cast<float>(i % 17) / 16;
    Tensor one = Tensor::Allocate(DT_FLOAT, Shape{of_its_own}).value();
    std::fill_n(one.data<float>(), of_its_own, 0.5f);
    return {{x, std::move(values)}, {own, std::move(one)}};
  }
  Outputs all() const {
    Outputs fetches = sums;
    fetches.insert(fetches.end(), losses.begin(), losses.end());
    return fetches;
  }
  Graph graph;
  Scope root;
  Output x, own;
  Outputs losses, sums;
};

// Groups of four GPUs that overlap, many in one step.
struct OverlappingGroups {
  explicit OverlappingGroups(int instances) : graph(NewGraph()), root(&graph) {
    x = Placeholder(root, DT_FLOAT, {});
    const std::vector<std::vector<std::string>> groups = {
        {Gpu(0), Gpu(1)}, {Gpu(1), Gpu(2)}, {Gpu(2), Gpu(0)}, {Gpu(3), Gpu(1), Gpu(0)}, Gpus(4)};
    for (int instance = 1; instance <= instances; ++instance) {
      for (size_t g = 0; g < groups.size(); ++g) {
        for (const Output& sum : SumOf(root, x, groups[g], instance, static_cast<int>(g))) {
          sums.push_back(sum);
          factors.push_back(2.0f * static_cast<float>(groups[g].size()));
        }
      }
    }
  }
  // Several steps in flight together: launched in different orders they would wait for each other
  // until their deadline.
  void RunAtOnce(Session& session, int threads, int steps) const {
    const Callable callable = session.MakeCallable({x}, sums).value();
    std::vector<std::future<void>> running;
    for (int t = 0; t < threads; ++t) {
      running.push_back(std::async(std::launch::async, [&, t] {
        for (int step = 0; step < steps; ++step) {
          const auto value = static_cast<float>(1 + t * steps + step);
          const std::vector<Tensor> feeds{Tensor::Scalar(value)};
          const auto values = session.RunCallable(callable, feeds);
          ASSERT_TRUE(values.ok()) << values.status();
          for (size_t i = 0; i < factors.size(); ++i)
            EXPECT_EQ(values->at(i).scalar<float>(), value * factors[i]);
        }
      }));
    }
    for (auto& thread : running) thread.get();
  }
  Graph graph;
  Scope root;
  Output x;
  Outputs sums;
  std::vector<float> factors;  // of each sum, by what is fed
};

}  // namespace monograph::testing
