#include "tests/simulation/counts.h"

#include <algorithm>

#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/variable/variable.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
void Counts::SetTo(const Tensor& value) {
  for (int field = 0; field < kFields; ++field) {
    const auto count = static_cast<int>((value.data<int64_t>()[0] >> (4 * field)) & 15);
    tried_[static_cast<size_t>(field)] = done_[static_cast<size_t>(field)] = count;
  }
}

void Counts::Check(const Tensor& value, const std::string& who, bool before) const {
  const int64_t* const elements = value.data<int64_t>();
  for (int i = 1; i < value.elements(); ++i) {
    if (elements[i] != elements[0])
      Fail(who +
           " has elements that differ: an update was seen in part: " + std::to_string(elements[0]) +
           ", and " + std::to_string(elements[i]) + " at " + std::to_string(i));
  }
  for (int field = 0; field < kFields; ++field) {
    const auto seen = static_cast<int>((elements[0] >> (4 * field)) & 15);
    const auto f = static_cast<size_t>(field);
    if (seen > tried_[f] || (!before && seen < done_[f])) {
      Fail(who + ": update " + std::to_string(field) + " was tried " + std::to_string(tried_[f]) +
           " times, done for certain " + std::to_string(done_[f]) + " times, and is seen " +
           std::to_string(seen) + " times");
    }
  }
}

CountingGraph::CountingGraph(const std::string& variable_device,
                             const std::vector<std::string>& devices, int length)
    : elements(length), graph(NewGraph()) {
  const Scope root(&graph);
  const Scope home = root.WithDevice(variable_device);
  const Shape shape{elements};
  variable = VarHandle(home.WithOpName("counts"), DT_INT64, shape);
  init = AssignVariable(home.WithOpName("init"), variable, Const(home, Of(0, 0)));
  value = ReadVariable(home.WithOpName("value"), variable);
  for (const std::string& device : devices) {
    const Scope place = root.WithDevice(device);
    Member& member = members.emplace_back();
    member.feed = Placeholder(place, DT_INT64, shape);
    const Output read = ReadVariable(home, variable);
    member.sum = Add(place, member.feed, read);
    // Computed there, so that the addition waits for a tensor of that device.
    const Output addend = Sub(place, Add(place, member.feed, member.feed), member.feed);
    member.update = AssignAddVariable(home, variable, addend);
  }
  if (!root.ok()) Fail("the graph of counts is wrong: " + root.status().ToString());
}

Tensor CountingGraph::Of(int field, int count) const {
  Tensor tensor = Tensor::Allocate(DT_INT64, Shape{elements}).value();
  std::fill_n(tensor.data<int64_t>(), elements, int64_t{count} << (4 * field));
  return tensor;
}

}  // namespace monograph::simulation
