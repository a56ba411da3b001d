// Offers of tasks, the choice between ways, and the networks that users trust.
#include <gtest/gtest.h>

#include <random>

#include "transport/lanes/offer.h"

namespace monograph {
namespace {

using Way = LaneChoice::Way;

std::vector<IpNetwork> Networks(const std::vector<std::string>& texts) {
  return ParseNetworks(texts).value();
}

// A task of a user on a host, with a key, by default.
LanesOffer Task(uint64_t host, uint64_t memory = 1) {
  LanesOffer offer;
  offer.ucx_major = 1;
  offer.ucx_minor = 13;
  offer.host = host;
  offer.memory = memory;
  offer.shared_memory = true;
  offer.tls_listens = true;
  offer.names = "posix,cma";
  offer.ucx = "ucx";
  offer.tls = "tls";
  return offer;
}

LanesOffer WithTcp(LanesOffer offer, const std::string& address, const std::string& trusted) {
  offer.names += ",tcp";
  offer.addresses = Networks({address + "/32"});
  offer.trusted = Networks({trusted});
  return offer;
}

// What both ends choose.
Way Chosen(const LanesOffer& a, const LanesOffer& b) {
  const auto mine = ChooseLane(a, b), theirs = ChooseLane(b, a);
  EXPECT_TRUE(mine.ok()) << mine.status();
  EXPECT_TRUE(theirs.ok()) << theirs.status();
  if (!mine.ok() || !theirs.ok()) return Way::kUcx;
  EXPECT_EQ(mine->way, theirs->way);
  EXPECT_EQ(mine->note, theirs->note);
  return mine->way;
}

TEST(LaneChoice, OneUsersTasksOnOneHostShareMemory) {
  EXPECT_EQ(Chosen(Task(7), Task(7)), Way::kUcx);
}

TEST(LaneChoice, TasksOfOneHostThatCannotShareMemoryTakeTlsAndSayWhy) {
  EXPECT_EQ(Chosen(Task(7, 1), Task(7, 2)), Way::kTls);
  EXPECT_NE(ChooseLane(Task(7, 1), Task(7, 2))->note.find("another user"), std::string::npos);
  EXPECT_EQ(Chosen(Task(7, 0), Task(7, 0)), Way::kTls) << "0: not known";
  LanesOffer newer = Task(7);
  newer.ucx_minor = 22;
  EXPECT_EQ(Chosen(Task(7), newer), Way::kTls);
  EXPECT_NE(ChooseLane(newer, Task(7))->note.find("version of UCX"), std::string::npos);
  // Also if both trust a network: UCX would try the memory first.
  EXPECT_EQ(Chosen(WithTcp(Task(7, 1), "10.0.0.1", "10.0.0.0/24"),
                   WithTcp(Task(7, 2), "10.0.0.1", "10.0.0.0/24")),
            Way::kTls);
}

TEST(LaneChoice, HostsTakeTlsUnlessBothTrustEachOthersAddress) {
  EXPECT_EQ(Chosen(Task(7), Task(8)), Way::kTls);
  EXPECT_EQ(ChooseLane(Task(7), Task(8))->note, "");
  const LanesOffer a = WithTcp(Task(7), "10.0.0.1", "10.0.0.0/24");
  EXPECT_EQ(Chosen(a, WithTcp(Task(8), "10.0.0.2", "10.0.0.0/16")), Way::kUcx);
  EXPECT_EQ(Chosen(a, WithTcp(Task(8), "10.0.0.2", "10.0.0.128/25")), Way::kTls);
  EXPECT_EQ(Chosen(a, WithTcp(Task(8), "10.0.1.2", "10.0.0.0/16")), Way::kTls);
  EXPECT_EQ(Chosen(a, Task(8)), Way::kTls);
  EXPECT_EQ(Chosen(WithTcp(Task(7), "127.0.0.1", "127.0.0.0/8"),
                   WithTcp(Task(8), "127.0.0.1", "127.0.0.0/8")),
            Way::kTls)
      << "each has a loopback device of its own";
}

TEST(LaneChoice, HostsOfOneRdmaNetworkUseIt) {
  LanesOffer a = Task(7), b = Task(8);
  a.fabrics = {3, 5};
  b.fabrics = {5};
  EXPECT_EQ(Chosen(a, b), Way::kUcx);
  b.fabrics = {4};
  EXPECT_EQ(Chosen(a, b), Way::kTls);
}

LanesOffer WithGpus(LanesOffer offer, bool ucx_knows_cuda) {
  offer.gpus = true;
  offer.gpu_memory = ucx_knows_cuda;
  return offer;
}

// What both ends say of memory of GPUs.
std::string GpuNote(const LanesOffer& a, const LanesOffer& b) {
  const auto mine = ChooseLane(a, b), theirs = ChooseLane(b, a);
  EXPECT_EQ(mine.status().code(), theirs.status().code());
  if (!mine.ok()) return mine.status().message();
  EXPECT_EQ(mine->gpu_note, theirs->gpu_note);
  EXPECT_EQ(mine->gpu_memory, theirs->gpu_memory);
  EXPECT_EQ(mine->gpu_memory, mine->gpu_note == "GPU memory directly");
  return mine->gpu_note;
}

TEST(LaneChoice, MemoryOfGpusGoesDirectlyBetweenTasksWithGpusWhoseUcxKnowsCuda) {
  const LanesOffer none = Task(7), knows = WithGpus(Task(7), true),
                   lacks = WithGpus(Task(7), false);
  EXPECT_EQ(GpuNote(none, none), "");
  EXPECT_EQ(GpuNote(knows, knows), "GPU memory directly");
  EXPECT_EQ(GpuNote(knows, none), "") << "which would not know what UCX sends it";
  const std::string through = "GPU memory through the host (UCX 1.13 does not know CUDA's memory)";
  EXPECT_EQ(GpuNote(knows, lacks), through);
  EXPECT_EQ(GpuNote(lacks, lacks), through);
  EXPECT_EQ(GpuNote(knows, WithGpus(Task(8), true)), "GPU memory through the host (tls)");
  EXPECT_EQ(GpuNote(knows, WithGpus(Task(7, 2), true)), "GPU memory through the host (tls)");
}

TEST(LaneChoice, AFlagOfOneTaskForbidsOrForcesThatMemoryOfGpusGoesDirectly) {
  const LanesOffer none = Task(7), knows = WithGpus(Task(7), true),
                   lacks = WithGpus(Task(7), false);
  LanesOffer staged = knows, direct = knows;
  staged.gpu_staged = true;
  direct.gpu_direct = true;
  const std::string by_flag = "GPU memory through the host (--gpu_transfers=staged)";
  EXPECT_EQ(GpuNote(knows, staged), by_flag);
  EXPECT_EQ(GpuNote(staged, lacks), by_flag);
  EXPECT_EQ(GpuNote(direct, knows), "GPU memory directly");
  EXPECT_EQ(GpuNote(direct, none), "");
  for (const LanesOffer& other : {staged, lacks, WithGpus(Task(8), true)}) {
    const Status refused = ChooseLane(direct, other).status();
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
    EXPECT_EQ(GpuNote(direct, other), refused.message());
    EXPECT_NE(refused.message().find("--gpu_transfers=direct"), std::string::npos) << refused;
  }
  EXPECT_EQ(GpuNote(direct, Task(8)), "") << "a client of another host";
}

TEST(LaneChoice, OneOfTwoMustListenForTls) {
  LanesOffer client = Task(7);
  client.tls_listens = false;
  EXPECT_EQ(Chosen(client, Task(8)), Way::kTls);
  LanesOffer other = Task(8);
  other.tls_listens = false;
  EXPECT_EQ(ChooseLane(client, other).status().code(), Code::kFailedPrecondition);
}

TEST(LaneChoice, ARefusalSaysWhatEachSideOffers) {
  LanesOffer tcp = WithTcp(Task(7), "127.0.0.1", "127.0.0.0/8");
  tcp.names = "tcp";
  tcp.shared_memory = false;
  tcp.tls.clear();
  const Status refused = ChooseLane(Task(7), tcp).status();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  for (const char* part : {"this task offers posix,cma of UCX 1.13 and tls",
                           "it offers tcp of UCX 1.13 (tcp at 127.0.0.1)", "on one host"})
    EXPECT_NE(refused.message().find(part), std::string::npos) << part << ": " << refused;
  EXPECT_FALSE(ChooseLane(tcp, Task(7)).ok());
}

TEST(LaneChoice, IsTheSameAtBothEndsWhateverTheyOffer) {
  std::mt19937 random(15);
  const auto pick = [&](uint32_t below) { return static_cast<uint32_t>(random() % below); };
  const auto any = [&] {
    LanesOffer offer = Task(pick(3), pick(3));
    offer.shared_memory = pick(3) > 0;
    offer.tls_listens = pick(2) > 0;
    offer.ucx_minor = static_cast<uint8_t>(13 + pick(2));
    if (pick(3) == 0) offer.ucx.clear();
    if (pick(3) == 0) offer.tls.clear();
    if (pick(3) == 0) offer.fabrics = {1 + pick(2)};
    if (pick(2) == 0) {
      offer = WithTcp(offer, pick(2) == 0 ? "10.0.0." + std::to_string(1 + pick(3)) : "127.0.0.1",
                      std::vector<std::string>{"10.0.0.0/30", "10.0.0.2/32", "127.0.0.0/8",
                                               "0.0.0.0/0"}[pick(4)]);
    }
    return offer;
  };
  int refused = 0, tls = 0, ucx = 0;
  for (int i = 0; i < 20000; ++i) {
    const LanesOffer a = any(), b = any();
    const auto mine = ChooseLane(a, b), theirs = ChooseLane(b, a);
    ASSERT_EQ(mine.ok(), theirs.ok());
    ++(!mine.ok() ? refused : mine->way == Way::kTls ? tls : ucx);
    if (mine.ok()) {
      ASSERT_EQ(mine->way, theirs->way);
    }
  }
  EXPECT_GT(std::min({refused, tls, ucx}), 100);
}

TEST(LanesOffer, SurvivesItsEncodingAndNoDamageDoes) {
  LanesOffer offer = WithTcp(Task(7, 9), "10.0.0.1", "10.0.0.0/24");
  offer.addresses.push_back(Networks({"fd00::1/128"})[0]);
  offer.fabrics = {11, 12};
  offer.gpus = offer.gpu_direct = true;
  const std::string bytes = EncodeLanesOffer(offer);
  const auto decoded = DecodeLanesOffer(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(EncodeLanesOffer(*decoded), bytes);
  EXPECT_EQ(decoded->addresses[1].ToString(), "fd00::1/128");
  EXPECT_TRUE(decoded->gpus && decoded->gpu_direct);
  EXPECT_FALSE(decoded->gpu_memory || decoded->gpu_staged);
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_EQ(DecodeLanesOffer(bytes.substr(0, length)).status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(DecodeLanesOffer(bytes + "x").ok());
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x41);
    EXPECT_FALSE(DecodeLanesOffer(flipped).ok()) << at;
  }
}

TEST(TrustedNetwork, IsAnAddressAndABitCount) {
  const std::vector<IpNetwork> networks = Networks({"10.1.0.0/16", "fd00:12::/64", "0.0.0.0/0"});
  EXPECT_EQ(networks[0].ToString(), "10.1.0.0/16");
  EXPECT_TRUE(networks[0].Contains(Networks({"10.1.255.3/32"})[0]));
  EXPECT_FALSE(networks[0].Contains(Networks({"10.2.0.0/32"})[0]));
  EXPECT_FALSE(networks[0].Contains(Networks({"10.0.0.0/8"})[0]));
  EXPECT_TRUE(networks[1].Contains(Networks({"fd00:12::7/128"})[0]));
  EXPECT_FALSE(networks[2].Contains(Networks({"fd00:12::7/128"})[0])) << "another family";
  EXPECT_TRUE(Networks({"127.0.0.1/32"})[0].loopback());
  EXPECT_TRUE(Networks({"::1/128"})[0].loopback());
  for (const char* wrong : {"", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8",
                            "10.0.0.0/8x", "10.0.0.1/24", "fd00::/129", "eth0", "/8"}) {
    const Status status = ParseNetworks({wrong}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << wrong;
    EXPECT_NE(status.message().find("10.0.0.0/24"), std::string::npos)
        << "what is right: " << status;
  }
  EXPECT_NE(ParseNetworks({"10.0.0.1/24"}).status().message().find("10.0.0.0/24 would be one"),
            std::string::npos);
}

}  // namespace
}  // namespace monograph
