// What collectives between GPUs agree on: who reaches whom, who sums what, who launches what when.
#include "executor/gpu/members.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "executor/gpu/grains.h"
#include "executor/gpu/launch_order.h"

namespace monograph {
namespace {

std::string Gpu(int task, int id) {
  return "/job:worker/replica:0/task:" + std::to_string(task) + "/device:GPU:" + std::to_string(id);
}

std::string Why(const std::vector<std::pair<std::string, std::string>>& links) {
  std::vector<std::string> devices;
  DeviceLinks there;
  for (const auto& [device, link] : links) {
    devices.push_back(device);
    if (!link.empty()) there[device] = link;
  }
  return WhyNoLink(*MakeCollectiveMembers(devices).value(), there);
}

TEST(DeviceLinks, GpusOnCardsOfTheirOwnReachEachOther) {
  EXPECT_EQ(Why({{Gpu(0, 0), "NCCL 2.28.9/a/0"}, {Gpu(0, 1), "NCCL 2.28.9/a/1"}}), "");
  EXPECT_EQ(Why({{Gpu(0, 0), "NCCL 2.28.9/a/0"}, {Gpu(1, 0), "NCCL 2.28.9/b/0"}}), "");
}

TEST(DeviceLinks, PartsOfOneCardOtherVersionsAndGpusWithoutALinkAreNamed) {
  EXPECT_EQ(Why({{Gpu(0, 0), "NCCL 2.28.9/a/0"}, {Gpu(1, 0), "NCCL 2.28.9/a/0"}}),
            Gpu(0, 0) + " and " + Gpu(1, 0) + " are parts of one card");
  EXPECT_EQ(Why({{Gpu(0, 0), "NCCL 2.28.9/a/0"}, {Gpu(0, 1), "NCCL 2.29.1/a/1"}}),
            Gpu(0, 1) + " has NCCL 2.29.1, " + Gpu(0, 0) + " NCCL 2.28.9");
  EXPECT_EQ(Why({{Gpu(0, 0), "NCCL 2.28.9/a/0"}, {Gpu(0, 1), ""}}),
            Gpu(0, 1) + " has no link to other GPUs");
}

TEST(DeviceLinks, SayWhichNodeACardIsOnAndTheLogHowAGroupLiesOnNodes) {
  EXPECT_EQ(NodeOfLink("NCCL 2.28.9/a/0"), NodeOfLink("NCCL 2.28.9/a/1"));
  EXPECT_NE(NodeOfLink("NCCL 2.28.9/a/0"), NodeOfLink("NCCL 2.28.9/b/0"));
  EXPECT_EQ(NodeOfLink("recorded/0"), NodeOfLink("recorded/1"));
  const auto way = [](const std::vector<std::string>& cards) {
    std::vector<std::string> devices;
    DeviceLinks links;
    for (size_t i = 0; i < cards.size(); ++i) {
      devices.push_back(Gpu(static_cast<int>(i), 0));
      links[devices.back()] = "NCCL 2.28.9/" + cards[i];
    }
    const std::string text = DescribeWay(*MakeCollectiveMembers(devices).value(), links, "");
    return text.substr(text.find("from"));
  };
  EXPECT_EQ(way({"a/0", "a/1"}), "from GPU to GPU by NCCL 2.28.9");
  EXPECT_EQ(way({"a/0", "b/0"}), "from GPU to GPU by NCCL 2.28.9, on 2 nodes");
  EXPECT_EQ(way({"a/0", "a/1", "b/0"}), "from GPU to GPU by NCCL 2.28.9, along 2 nodes");
  EXPECT_EQ(way({"a/0", "b/0", "a/1"}),
            "from GPU to GPU by NCCL 2.28.9, on 2 nodes, each with all: the ranks of a node do not "
            "follow each other");
}

TEST(Grains, PartsCoverEachElementOnceInOrderWhereverTheyAreCut) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Shape> tensors;
    std::vector<TensorPart> all;
    for (unsigned i = 0; i < 1 + random() % 6; ++i) {
      const auto elements = static_cast<int64_t>(random() % 4 == 0 ? 0 : random() % 3000);
      if (elements > 0) all.push_back({static_cast<uint32_t>(i), 0, elements});
      tensors.push_back(Shape{elements});
    }
    const Grains grains(tensors);
    EXPECT_EQ(grains.Parts(0, grains.count()), all);
    std::vector<TensorPart> joined;
    for (int64_t at = 0; at < grains.count();) {
      const int64_t end = std::min<int64_t>(grains.count(), at + random() % 30);
      for (const TensorPart& part : grains.Parts(at, end)) {
        ASSERT_EQ(part.begin % Grains::kElements, 0);
        ASSERT_GT(part.elements(), 0);
        if (!joined.empty() && joined.back().tensor == part.tensor) {
          ASSERT_EQ(joined.back().end, part.begin);
          joined.back().end = part.end;
        } else {
          joined.push_back(part);
        }
      }
      at = end;
    }
    EXPECT_EQ(joined, all);
  }
}

// Devices that hear of collectives of random groups in random orders, with random delays.
TEST(LaunchOrder, AnyTwoDevicesLaunchWhatTheyShareInTheSameOrder) {
  constexpr int kDevices = 4, kCollectives = 60;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    struct Meeting {
      std::vector<int> members;
      std::map<int, LaunchOrder<int>::Place> places;  // who has come
      std::vector<int> deciding;                      // who is to hear that all have
      uint64_t number = 0;
    };
    std::vector<Meeting> meetings(kCollectives);
    std::vector<LaunchOrder<int>> orders(kDevices);
    std::vector<std::vector<int>> begun(kDevices), launched(kDevices);
    std::vector<std::pair<int, int>> arrivals;  // device and collective
    for (int c = 0; c < kCollectives; ++c) {
      for (int d = 0; d < kDevices; ++d) {
        if (random() % 2 != 0) meetings[static_cast<size_t>(c)].members.push_back(d);
      }
      for (const int d : meetings[static_cast<size_t>(c)].members) arrivals.emplace_back(d, c);
    }
    std::shuffle(arrivals.begin(), arrivals.end(), random);
    std::vector<std::pair<int, int>> decisions;
    while (!arrivals.empty() || !decisions.empty()) {
      const bool arrive = decisions.empty() || (!arrivals.empty() && random() % 2 != 0);
      auto& from = arrive ? arrivals : decisions;
      std::swap(from[random() % from.size()], from.back());
      const auto [d, c] = from.back();
      from.pop_back();
      Meeting& meeting = meetings[static_cast<size_t>(c)];
      auto& order = orders[static_cast<size_t>(d)];
      if (arrive) {
        const CollectiveName name{.step = 1, .instance = c};
        meeting.places[d] = order.Propose(name, c);
        meeting.number = std::max(meeting.number, meeting.places[d].first);
        if (meeting.places.size() == meeting.members.size()) {
          for (const int member : meeting.members) decisions.emplace_back(member, c);
        }
        continue;
      }
      meeting.places[d] = order.Decide(meeting.places[d], meeting.number);
      while (const int* next = order.Next()) {
        const int launches = *next;
        launched[static_cast<size_t>(d)].push_back(launches);
        order.Remove(meetings[static_cast<size_t>(launches)].places[d]);
      }
    }
    for (size_t a = 0; a < kDevices; ++a) {
      for (size_t b = 0; b < a; ++b) {
        const auto shared = [&](size_t device, size_t with) {
          std::vector<int> list;
          for (const int c : launched[device]) {
            const auto& members = meetings[static_cast<size_t>(c)].members;
            if (std::count(members.begin(), members.end(), static_cast<int>(with)) != 0)
              list.push_back(c);
          }
          return list;
        };
        EXPECT_EQ(shared(a, b), shared(b, a)) << "seed " << seed;
      }
    }
    for (size_t d = 0; d < kDevices; ++d) {
      EXPECT_EQ(static_cast<int64_t>(launched[d].size()),
                std::count_if(meetings.begin(), meetings.end(), [&](const Meeting& meeting) {
                  return std::count(meeting.members.begin(), meeting.members.end(),
                                    static_cast<int>(d)) != 0;
                }));
    }
  }
}

}  // namespace
}  // namespace monograph
