// What every Transport must do. An implementation joins with INSTANTIATE_TEST_SUITE_P(Name,
// TransportConformance, cases, CaseName).
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace monograph {

struct TransportCase {
  std::string name;
  TransportFactory make;
  bool by_reference = false;  // payloads between the transports of one process are not copied
  std::string expected_lane;  // a part of what Describe says
  // Payloads lie in this memory of a GPU, which the host can look at (tests/gpu/emulated), and come
  // there; nullptr: in the host's.
  Allocator* gpu = nullptr;
};

inline std::string CaseName(const ::testing::TestParamInfo<TransportCase>& info) {
  return info.param.name;
}

// Keeps what arrives, unless a function is set that does something else.
class Recorder : public MessageHandler {
 public:
  struct Message {
    std::string header;
    Payload payload;
    Status status;
  };

  PayloadSink OnMessage(std::string_view header, size_t payload_bytes) override;
  PayloadSink OnGpuMessage(std::string_view header, size_t payload_bytes) override;
  void OnDelivered(std::string_view header, Payload payload) override;

  // Waits until `count` messages are complete; false after 20 s.
  bool WaitFor(size_t count);
  size_t count() const;
  std::vector<Message> messages() const;
  std::vector<std::string> header_order() const;  // as headers came, before their payloads

  using OnMessageFunction = std::function<PayloadSink(std::string_view, size_t)>;
  using OnDeliveredFunction = std::function<void(std::string_view, Payload)>;
  void set_on_message(OnMessageFunction function);
  void set_on_delivered(OnDeliveredFunction function);

 private:
  PayloadSink Take(std::string_view header, size_t payload_bytes, Allocator* memory);
  void Add(Message message);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> messages_;
  std::vector<std::string> headers_;
  OnMessageFunction on_message_;
  OnDeliveredFunction on_delivered_;
};

// Counts completions. A Done may outlive it.
class Completions {
 public:
  Done Add();
  // Waits until as many have run as were added; false after 20 s.
  bool WaitForAll();
  int added() const;
  int ran() const;
  int ok() const;
  int with(Code code) const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int added = 0;
    std::vector<Code> codes;  // of those that have run
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// A payload whose bytes follow from `seed`; in the GPU's memory in a case of one.
Payload MakePayload(size_t bytes, uint32_t seed);
bool PayloadIs(const Payload& payload, size_t bytes, uint32_t seed);

class TransportConformance : public ::testing::TestWithParam<TransportCase> {
 protected:
  ~TransportConformance() override;
  void SetUp() override;
  void TearDown() override;
  std::unique_ptr<Transport> Make(MessageHandler* handler);
  static void Shut(std::unique_ptr<Transport>& transport);

  // Shuts the transports when it goes out of scope. To be declared after what their callbacks use.
  class ShutAtEnd {
   public:
    explicit ShutAtEnd(TransportConformance* test) : test_(test) {}
    ~ShutAtEnd() { test_->TearDown(); }
    ShutAtEnd(const ShutAtEnd&) = delete;
    ShutAtEnd& operator=(const ShutAtEnd&) = delete;

   private:
    TransportConformance* const test_;
  };

  Recorder at_a_, at_b_;
  std::unique_ptr<Transport> a_, b_;
  PeerId b_of_a_ = 0, a_of_b_ = 0;
};

std::chrono::steady_clock::time_point In(std::chrono::milliseconds time);

}  // namespace monograph
